//! The directives of TLS, as rustls takes them.

use super::Config;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Words of `tls-auth-clients`.
pub const AUTH_CLIENTS: [&str; 3] = ["no", "yes", "optional"];
/// Words of `tls-auth-clients-user`.
pub const AUTH_CLIENTS_USER: [&str; 2] = ["off", "CN"];

/// The names that OpenSSL, and with it Redis's directives, has for the cipher suites, and those of rustls.
const CIPHERS: [(&str, &str); 9] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS13_AES_256_GCM_SHA384"),
    ("TLS_AES_128_GCM_SHA256", "TLS13_AES_128_GCM_SHA256"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS13_CHACHA20_POLY1305_SHA256"),
];

impl Config {
    /// Whether the server listens for TLS.
    pub const fn speaks_tls(&self) -> bool {
        self.tls_port != 0 || self.memcached_tls || self.metrics_tls
    }

    /// The settings of TLS, with the files as they are now.
    ///
    /// # Errors
    /// The directive and what is wrong with it.
    pub fn tls(&self) -> Result<Arc<ServerConfig>, String> {
        let provider =
            Arc::new(CryptoProvider { cipher_suites: self.ciphers()?, ..ring::default_provider() });
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_protocol_versions(&self.protocols()?)
            .map_err(|error| format!("tls-protocols and tls-ciphers leave nothing: {error}"))?;
        let builder = match self.tls_auth_clients.as_str() {
            "no" => builder.with_no_client_auth(),
            wanted => {
                let roots = Arc::new(self.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
                let verifier = if wanted == "optional" { verifier.allow_unauthenticated() } else { verifier };
                let verifier = verifier.build().map_err(|error| format!("tls-ca-cert-file: {error}"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.certificates(&provider)?));
        config.ignore_client_order = self.tls_prefer_server_ciphers;
        if self.tls_session_caching {
            let seconds = Duration::from_secs(self.tls_session_cache_timeout);
            config.session_storage = Arc::new(Sessions::new(self.tls_session_cache_size, seconds));
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }

    fn certificates(&self, provider: &CryptoProvider) -> Result<Certificates, String> {
        if self.tls_cert_file.is_empty() || self.tls_key_file.is_empty() {
            return Err("tls-cert-file and tls-key-file are not set, which TLS needs".to_owned());
        }
        let default = certified(&self.tls_cert_file, &self.tls_key_file, provider)?;
        let mut by_name = HashMap::new();
        for words in self.tls_sni.chunks(3) {
            let [name, chain, key] = words else {
                return Err("duramen-tls-sni: wanted a name, a certificate and a key for each".to_owned());
            };
            by_name.insert(name.to_ascii_lowercase(), certified(chain, key, provider)?);
        }
        Ok(Certificates { default, by_name })
    }

    fn authorities(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let mut files = Vec::new();
        if !self.tls_ca_cert_file.is_empty() {
            files.push(self.tls_ca_cert_file.clone());
        }
        if !self.tls_ca_cert_dir.is_empty() {
            let directory = &self.tls_ca_cert_dir;
            let entries = std::fs::read_dir(directory)
                .map_err(|error| format!("tls-ca-cert-dir {directory}: {error}"))?;
            let all = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
            files.extend(all.map(|path| path.display().to_string()));
        }
        for file in files {
            for certificate in chain(&file)? {
                roots.add(certificate).map_err(|error| format!("authority {file}: {error}"))?;
            }
        }
        if roots.is_empty() {
            return Err(
                "tls-ca-cert-file or tls-ca-cert-dir must name the authority of clients; \"tls-auth-clients no\" asks for no certificates"
                    .to_owned(),
            );
        }
        Ok(roots)
    }

    fn protocols(&self) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
        let mut versions = Vec::new();
        for word in self.tls_protocols.split_whitespace() {
            versions.push(match word.to_ascii_lowercase().as_str() {
                "tlsv1.2" => &TLS12,
                "tlsv1.3" => &TLS13,
                "tlsv1" | "tlsv1.1" => {
                    return Err(format!("tls-protocols: {word} is not safe and not supported"));
                }
                _ => return Err(format!("tls-protocols: {word} is unknown; use TLSv1.2 and TLSv1.3")),
            });
        }
        Ok(if versions.is_empty() { vec![&TLS13, &TLS12] } else { versions })
    }

    /// The suites that the two directives name; all of a version whose directive is empty.
    fn ciphers(&self) -> Result<Vec<SupportedCipherSuite>, String> {
        let all = ring::ALL_CIPHER_SUITES;
        let is_new = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        let mut chosen = Vec::new();
        for (directive, text, is_13) in
            [("tls-ciphersuites", &self.tls_ciphersuites, true), ("tls-ciphers", &self.tls_ciphers, false)]
        {
            if matches!(text.as_str(), "" | "DEFAULT" | "HIGH" | "ALL") {
                chosen.extend(all.iter().filter(|suite| is_new(suite) == is_13));
                continue;
            }
            for name in text.split(':') {
                let own = CIPHERS.iter().find(|(known, _)| *known == name).map(|(_, own)| *own);
                let suite = all.iter().find(|suite| {
                    is_new(suite) == is_13 && own.is_some_and(|own| format!("{:?}", suite.suite()) == own)
                });
                chosen.push(*suite.ok_or_else(|| {
                    let known: Vec<&str> = CIPHERS
                        .iter()
                        .map(|(known, _)| *known)
                        .filter(|known| known.starts_with("TLS_") == is_13)
                        .collect();
                    format!("{directive}: {name} is unknown; there are {}", known.join(":"))
                })?);
            }
        }
        Ok(chosen)
    }
}

fn chain(file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| format!("certificate {file}: {error}"))?;
    if read.is_empty() { Err(format!("certificate {file}: there is none in it")) } else { Ok(read) }
}

fn certified(
    chain_file: &str,
    key_file: &str,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, String> {
    let chain = chain(chain_file)?;
    let text = std::fs::read_to_string(Path::new(key_file)).unwrap_or_default();
    if text.contains("ENCRYPTED") {
        return Err(format!(
            "key {key_file}: keys with a password are not supported; remove it with \"openssl pkey\""
        ));
    }
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| format!("key {key_file}: {error}"))?;
    let key =
        provider.key_provider.load_private_key(key).map_err(|error| format!("key {key_file}: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|error| format!("key {key_file} is not that of the certificate {chain_file}: {error}"))?;
    Ok(Arc::new(certified))
}

/// The certificate by the name that the client asks for (SNI), else the one of `tls-cert-file`.
#[derive(Debug)]
struct Certificates {
    default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let own = hello.server_name().and_then(|name| self.by_name.get(&name.to_ascii_lowercase()));
        Some(Arc::clone(own.unwrap_or(&self.default)))
    }
}

/// Sessions that clients may resume: the newest ones, for some time.
#[derive(Debug)]
struct Sessions {
    most: usize,
    time: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    in_order: VecDeque<Vec<u8>>,
}

impl Sessions {
    fn new(most: usize, time: Duration) -> Self {
        Self { most: if most == 0 { 1 << 20 } else { most }, time, kept: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fresh(&self, (since, value): (Instant, Vec<u8>)) -> Option<Vec<u8>> {
        (since.elapsed() <= self.time).then_some(value)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.with(|kept| {
            while kept.in_order.len() >= self.most {
                let Some(oldest) = kept.in_order.pop_front() else { break };
                kept.by_id.remove(&oldest);
            }
            kept.in_order.push_back(key.clone());
            kept.by_id.insert(key, (Instant::now(), value));
        });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|kept| kept.by_id.get(key).cloned()).and_then(|found| self.fresh(found))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|kept| kept.by_id.remove(key)).and_then(|found| self.fresh(found))
    }

    fn can_cache(&self) -> bool {
        true
    }
}
