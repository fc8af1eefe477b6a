//! Certificates for checks over TLS, made by OpenSSL's program.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::failure::{Attempt, Failure, Result};

/// Makes an authority (`ca.crt`), the certificate of a server (`server`) and those of two clients (`ada`, `other`), each
/// with its key (`.key`); `ada.p12` has the password `secret`.
pub fn make(files: &Path) -> Result<()> {
    fs::create_dir_all(files).attempt(|| format!("make {}", files.display()))?;
    let openssl = |line: &str| {
        let output = Command::new("openssl").args(line.split(' ')).current_dir(files).output();
        let output = output.attempt(|| "run openssl, of Debian's package of that name".to_owned())?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(Failure::new(format!("openssl {line}: {}\n{said}", output.status)))
            }
        }
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"))?;
    for (name, common_name, extensions) in [
        ("server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1\n"),
        ("ada", "ada", "basicConstraints=CA:FALSE\n"),
        ("other", "other", "basicConstraints=CA:FALSE\n"),
    ] {
        fs::write(files.join("extensions"), extensions).attempt(|| "write extensions".to_owned())?;
        openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={common_name}"))?;
        let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions";
        openssl(&format!("x509 -req -in {name}.csr {signed} -out {name}.crt"))?;
    }
    openssl("pkcs12 -export -in ada.crt -inkey ada.key -out ada.p12 -passout pass:secret")
}
