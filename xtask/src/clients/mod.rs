//! `cargo xtask clients`: runs client libraries from their registries against `duramen serve`, each in a programme that
//! uses it as an application does.
//!
//! Libraries are installed once, into a cache directory. A client that the machine cannot run, or that its registry
//! does not deliver, is reported but is no finding. A programme that kills the server at work starts it again itself, by
//! the words of `SERVER_COMMAND`; a reference without persistence is not killed. The clients of [`OVER_TLS`] get a server
//! that asks for certificates; OpenSSL's program makes these.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::certificates;
use crate::failure::{Attempt, Failure, Result};
use crate::server::{Server, duramen_program, free_port, wait_for_end};

#[derive(clap::Args)]
pub struct Settings {
    /// The duramen program [default: built now]
    #[arg(long, value_name = "PATH")]
    pub duramen: Option<PathBuf>,
    /// Runs those of Redis against this redis-server instead
    #[arg(long, value_name = "PATH")]
    pub redis: Option<PathBuf>,
    /// Runs those of memcached against this memcached instead
    #[arg(long, value_name = "PATH")]
    pub memcached: Option<PathBuf>,
    /// Where libraries are installed [default: target/clients]
    #[arg(long, value_name = "PATH", default_value_os_t = crate::repository().join("target/clients"), hide_default_value = true)]
    pub cache: PathBuf,
    /// Only the clients whose names contain one of these
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,
}

/// A client library, or a framework on top of one.
struct Client {
    name: &'static str,
    language: Language,
    /// The names in the registry of the language.
    packages: &'static [&'static str],
    /// The files of the programme; the first one is run.
    programmes: &'static [(&'static str, &'static str)],
}

impl Client {
    fn is_over_tls(&self) -> bool {
        OVER_TLS.contains(&self.name)
    }

    fn is_of_memcached(&self) -> bool {
        OF_MEMCACHED.contains(&self.name)
    }

    /// Whether the server for this client is available: duramen, unless another server is named.
    fn has_reference(&self, settings: &Settings) -> bool {
        let (own, other) = match self.is_of_memcached() {
            true => (&settings.memcached, &settings.redis),
            false => (&settings.redis, &settings.memcached),
        };
        own.is_some() || other.is_none()
    }
}

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
    Go,
    Java,
    Rust,
    /// Installed already: Debian's packages.
    Ruby,
    Shell,
}

macro_rules! programmes {
    ($($name:literal),+) => { &[$(($name, include_str!(concat!("programs/", $name)))),+] };
}

// Below 6.6 come its betas.
const LETTUCE: &str = "io.lettuce:lettuce-core:[6.5,6.5.99]";

const CLIENTS: &[Client] = &[
    Client {
        name: "redis-py",
        language: Language::Python,
        packages: &["redis"],
        programmes: programmes!("redis_py.py"),
    },
    Client {
        name: "redis-py Lock",
        language: Language::Python,
        packages: &["redis"],
        programmes: programmes!("redis_lock.py"),
    },
    Client {
        name: "RQ",
        language: Language::Python,
        packages: &["rq"],
        programmes: programmes!("rq_jobs.py", "rq_work.py"),
    },
    Client {
        name: "rq-scheduler",
        language: Language::Python,
        packages: &["rq-scheduler"],
        programmes: programmes!("rq_scheduled.py", "rq_noted.py"),
    },
    Client {
        name: "Celery",
        language: Language::Python,
        packages: &["celery[redis]", "packaging"],
        programmes: programmes!("celery_jobs.py"),
    },
    Client {
        name: "django-redis",
        language: Language::Python,
        packages: &["django", "django-redis"],
        programmes: programmes!("django_cache.py"),
    },
    Client {
        name: "ioredis",
        language: Language::Node,
        packages: &["ioredis"],
        programmes: programmes!("ioredis.mjs"),
    },
    Client {
        name: "BullMQ",
        language: Language::Node,
        packages: &["bullmq", "ioredis"],
        programmes: programmes!("bullmq.mjs"),
    },
    Client {
        name: "rate-limiter-flexible",
        language: Language::Node,
        packages: &["rate-limiter-flexible", "ioredis"],
        programmes: programmes!("rate_limiter_flexible.mjs"),
    },
    Client {
        name: "node-redis",
        language: Language::Node,
        packages: &["redis"],
        programmes: programmes!("node_redis.mjs"),
    },
    Client {
        name: "go-redis",
        language: Language::Go,
        packages: &["github.com/redis/go-redis/v9"],
        programmes: programmes!("go_redis.go"),
    },
    Client {
        name: "Jedis",
        language: Language::Java,
        packages: &["redis.clients:jedis:[5.2,6)"],
        programmes: programmes!("WithJedis.java"),
    },
    Client {
        name: "Lettuce",
        language: Language::Java,
        packages: &[LETTUCE],
        programmes: programmes!("WithLettuce.java"),
    },
    Client {
        name: "Spring Session",
        language: Language::Java,
        packages: &["org.springframework.session:spring-session-data-redis:[3.4,3.4.99]", LETTUCE],
        programmes: programmes!("WithSpringSession.java"),
    },
    Client {
        name: "Redisson",
        language: Language::Java,
        packages: &["org.redisson:redisson:[3.40,3.40.99]"],
        programmes: programmes!("WithRedisson.java"),
    },
    Client {
        name: "Sidekiq",
        language: Language::Ruby,
        packages: &["sidekiq"],
        programmes: programmes!("sidekiq_jobs.rb"),
    },
    Client {
        name: "redis-rs",
        language: Language::Rust,
        packages: &["redis@0.32"],
        programmes: programmes!("redis_rs.rs"),
    },
    Client {
        name: "redis-cli TLS",
        language: Language::Shell,
        packages: &[],
        programmes: programmes!("redis_cli_tls.sh"),
    },
    Client {
        name: "redis-py TLS",
        language: Language::Python,
        packages: &["redis"],
        programmes: programmes!("redis_py_tls.py"),
    },
    Client {
        name: "redis-py ACL",
        language: Language::Python,
        packages: &[
            "redis==5.2.1",
            "pytest",
            "pytest-asyncio==0.24",
            "pytest-timeout",
            "cryptography",
            "uvloop",
            "cachetools",
            "packaging",
        ],
        programmes: programmes!("redis_py_acl.py"),
    },
    Client {
        name: "ioredis TLS",
        language: Language::Node,
        packages: &["ioredis"],
        programmes: programmes!("ioredis_tls.mjs"),
    },
    Client {
        name: "Jedis TLS",
        language: Language::Java,
        packages: &["redis.clients:jedis:[5.2,6)"],
        programmes: programmes!("TlsJedis.java"),
    },
    Client {
        name: "pymemcache",
        language: Language::Python,
        packages: &["pymemcache"],
        programmes: programmes!("with_pymemcache.py"),
    },
    Client {
        name: "pylibmc",
        language: Language::Python,
        packages: &["pylibmc"],
        programmes: programmes!("with_pylibmc.py"),
    },
    Client {
        name: "memjs",
        language: Language::Node,
        packages: &["memjs"],
        programmes: programmes!("memjs.mjs"),
    },
    Client {
        name: "gomemcache",
        language: Language::Go,
        packages: &["github.com/bradfitz/gomemcache/memcache"],
        programmes: programmes!("gomemcache.go"),
    },
    Client {
        name: "spymemcached",
        language: Language::Java,
        packages: &["net.spy:spymemcached:2.12.3"],
        programmes: programmes!("WithSpymemcached.java"),
    },
    Client {
        name: "xmemcached",
        language: Language::Java,
        packages: &["com.googlecode.xmemcached:xmemcached:2.4.8"],
        programmes: programmes!("WithXmemcached.java"),
    },
];

/// The clients of memcached's protocols; all others speak Redis's.
const OF_MEMCACHED: &[&str] = &["pymemcache", "pylibmc", "memjs", "gomemcache", "spymemcached", "xmemcached"];

/// The clients that speak TLS, with a certificate.
const OVER_TLS: &[&str] = &["redis-cli TLS", "redis-py TLS", "ioredis TLS", "Jedis TLS"];

const PATIENCE: Duration = Duration::from_secs(240);

/// Runs the clients; returns whether all of them passed.
pub fn run(settings: &Settings) -> Result<bool> {
    let mut is_good = true;
    println!("| client | result | seconds |\n|---|---|---|");
    for client in CLIENTS {
        let name = client.name.to_lowercase();
        let is_named = settings.only.iter().any(|part| name.contains(&part.to_lowercase()));
        if !settings.only.is_empty() && !is_named || !client.has_reference(settings) {
            continue;
        }
        let begun = Instant::now();
        let outcome = outcome(client, settings)?;
        is_good &= !matches!(outcome, Outcome::Failed(_));
        println!("| {} | {} | {:.1} |", client.name, outcome.text(), begun.elapsed().as_secs_f64());
        if let Outcome::Failed(why) | Outcome::NotInstalled(why) = &outcome {
            println!("\n```\n{why}\n```\n");
        }
    }
    Ok(is_good)
}

enum Outcome {
    Passed,
    NotInstalled(String),
    Failed(String),
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::NotInstalled(_) => "could not be installed".to_owned(),
            Self::Failed(_) => "FAILED".to_owned(),
        }
    }
}

fn outcome(client: &Client, settings: &Settings) -> Result<Outcome> {
    let directory = settings.cache.join(client.name);
    fs::create_dir_all(&directory).attempt(|| format!("make {}", directory.display()))?;
    for (file, text) in client.programmes {
        let path = directory.join(file);
        fs::write(&path, text).attempt(|| format!("write {}", path.display()))?;
    }
    let programme = match prepare(client, &directory) {
        Ok(programme) => programme,
        Err(why) => return Ok(Outcome::NotInstalled(why.to_string())),
    };
    let store = tempfile::tempdir_in("/dev/shm").attempt(|| "make a directory in /dev/shm".to_owned())?;
    let memcached_port = free_port()?;
    let tls_port = free_port()?;
    let files = store.path().join("tls");
    if client.is_over_tls() {
        certificates::make(&files)?;
    }
    let server = serve(client, settings, store.path(), [memcached_port, tls_port])?;
    let (port, memcached_port) = (server.port().to_string(), memcached_port.to_string());
    let log = directory.join("workers.log");
    // The log holds this run alone.
    let _ = fs::remove_file(&log);
    let (log, files, tls_port) =
        (log.display().to_string(), files.display().to_string(), tls_port.to_string());
    let (pid, command) = (server.pid().to_string(), server.command().join("\n"));
    let mut envs = vec![
        ("PORT", port.as_str()),
        ("MEMCACHED_PORT", &memcached_port),
        ("TLS_PORT", &tls_port),
        ("TLS", &files),
        ("LOG", &log),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    if settings.redis.is_none() {
        // Redis 7.0 has no users by certificate.
        envs.push(("BY_CERTIFICATE", "1"));
    }
    if settings.redis.is_none() && settings.memcached.is_none() {
        envs.extend([("SERVER_PID", pid.as_str()), ("SERVER_COMMAND", &command)]);
    }
    Ok(match said(&programme, &directory, &envs) {
        Ok(_) => Outcome::Passed,
        Err(why) => Outcome::Failed(why.to_string()),
    })
}

/// Starts the server for a client.
fn serve(
    client: &Client,
    settings: &Settings,
    store: &Path,
    [memcached_port, tls_port]: [u16; 2],
) -> Result<Server> {
    let patience = Duration::from_secs(20);
    let file = |name: &str| store.join("tls").join(name).display().to_string();
    let (tls_port, cert, key, ca) =
        (tls_port.to_string(), file("server.crt"), file("server.key"), file("ca.crt"));
    let mut more: Vec<&str> = Vec::new();
    if client.is_over_tls() {
        more.extend(["--tls-port", &tls_port, "--tls-cert-file", &cert, "--tls-key-file", &key]);
        more.extend(["--tls-ca-cert-file", &ca]);
    }
    let reference = if client.is_of_memcached() { &settings.memcached } else { &settings.redis };
    let mut server = match reference {
        Some(program) if client.is_of_memcached() => {
            let server = Server::start_memcached(program, memcached_port, &[], store)?;
            server.demand_connects(patience)?;
            return Ok(server);
        }
        Some(program) => Server::start_redis_with(program, &more, store)?,
        None => {
            let (place, number) = (store.display().to_string(), memcached_port.to_string());
            let program = duramen_program(settings.duramen.clone())?;
            if client.is_over_tls() {
                more.extend(["--tls-auth-clients-user", "CN"]);
                more.extend(["--user", "ada", "on", "resetpass", "~*", "&*", "+@all"]);
            }
            more.extend(["--duramen-path", &place, "--memcached", &number]);
            Server::start_duramen(&program, &more, &store.join("log"))?
        }
    };
    server.demand_ready(patience)?;
    Ok(server)
}

/// Installs a client's packages if they are missing; returns the command line of its programme.
fn prepare(client: &Client, directory: &Path) -> Result<Vec<String>> {
    let (file, _) = client.programmes[0];
    let stem = file.split('.').next().unwrap_or_default();
    let is_there = directory.join("installed").exists();
    let call = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        said(&words, directory, &[]).map(|_| ())
    };
    let with = |words: &[&'static str]| [words, client.packages].concat();
    let programme = match client.language {
        Language::Python => {
            if !is_there {
                call(&["python3", "-m", "venv", "venv"])?;
                call(&with(&["venv/bin/pip", "install", "--quiet"]))?;
            }
            vec!["venv/bin/python".to_owned(), file.to_owned()]
        }
        Language::Node => {
            if !is_there {
                write(directory, "package.json", "{\"private\": true}\n")?;
                call(&with(&["npm", "install", "--no-audit", "--no-fund"]))?;
            }
            vec!["node".to_owned(), file.to_owned()]
        }
        Language::Go => {
            if !is_there {
                write(directory, "go.mod", "module clients\n\ngo 1.24\n")?;
                call(&with(&["go", "get"]))?;
            }
            call(&["go", "build", "-o", stem, file])?;
            vec![format!("./{stem}")]
        }
        Language::Java => {
            if !is_there {
                write(directory, "pom.xml", &pom(client.packages))?;
                call(&[
                    "mvn",
                    "--quiet",
                    "--batch-mode",
                    "dependency:copy-dependencies",
                    "-DoutputDirectory=lib",
                ])?;
            }
            call(&["javac", "-cp", "lib/*", file])?;
            ["java", "-cp", ".:lib/*", stem].map(str::to_owned).to_vec()
        }
        Language::Ruby => {
            for package in client.packages {
                call(&["ruby", "-r", package, "-e", "1"])?;
            }
            vec!["ruby".to_owned(), file.to_owned()]
        }
        Language::Shell => vec!["sh".to_owned(), file.to_owned()],
        Language::Rust => {
            if !is_there {
                write(
                    directory,
                    "Cargo.toml",
                    &format!("{MANIFEST}[[bin]]\nname = \"{stem}\"\npath = \"{file}\"\n"),
                )?;
                call(&with(&["cargo", "add", "--quiet"]))?;
            }
            call(&["cargo", "build", "--quiet", "--target-dir", "target"])?;
            vec![format!("target/debug/{stem}")]
        }
    };
    write(directory, "installed", "")?;
    Ok(programme)
}

// A separate workspace, wherever the cache lies.
const MANIFEST: &str =
    "[package]\nname = \"clients\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n";

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(directory.join(name), text).attempt(|| format!("write {name} in {}", directory.display()))
}

fn pom(packages: &[&str]) -> String {
    let dependency = |package: &&str| {
        let parts: Vec<&str> = package.split(':').collect();
        let at = |index: usize| parts.get(index).copied().unwrap_or_default();
        format!(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>",
            at(0),
            at(1),
            at(2)
        )
    };
    let dependencies: String = packages.iter().map(dependency).collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>clients</groupId>\
         <artifactId>clients</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )
}

/// Runs a program in a directory to its end; an error holds the end of its output.
fn said(words: &[String], directory: &Path, envs: &[(&str, &str)]) -> Result<String> {
    let shown = words.join(" ");
    let (program, arguments) = words.split_first().ok_or_else(|| Failure::new("no program"))?;
    // In the client's directory, or in `PATH`.
    let own = directory.join(program);
    let program = if program.contains('/') { own.as_os_str() } else { program.as_ref() };
    let log = directory.join("said.log");
    let out = fs::File::create(&log).attempt(|| format!("write {}", log.display()))?;
    let err = out.try_clone().attempt(|| format!("write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).envs(envs.iter().copied());
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().attempt(|| format!("start {shown}"))?;
    let ended = wait_for_end(&mut child, PATIENCE).attempt(|| format!("wait for {shown}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    match ended {
        Some(status) if status.success() => Ok(text),
        Some(status) => Err(Failure::new(format!("{shown}: {status}\n{}", end_of(&text)))),
        None => {
            // The process has ended already, or ends now.
            let _ = child.kill();
            let _ = child.wait();
            Err(Failure::new(format!("{shown}: no end within {} s\n{}", PATIENCE.as_secs(), end_of(&text))))
        }
    }
}

fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
