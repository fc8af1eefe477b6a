"""redis-py's own tests of ACL, from its source package."""
import glob
import os
import subprocess
import sys

SOURCE = "redis-5.2.1"
if not os.path.isdir(SOURCE):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, SOURCE.replace("-", "==")], check=True)
    subprocess.run(["tar", "xzf", *glob.glob(f"{SOURCE}*.tar.gz")], check=True)
with open(f"{SOURCE}/own.ini", "w") as file:
    file.write("[pytest]\nasyncio_mode = auto\n")
pytest = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c", "own.ini", "-k", "acl"]
tests = ["tests/test_commands.py", "tests/test_asyncio/test_commands.py"]
for protocol in ("2", "3"):
    at = [f"--redis-url=redis://localhost:{os.environ['PORT']}/9", f"--protocol={protocol}"]
    subprocess.run([*pytest, *tests, *at], cwd=SOURCE, check=True)
