//! A topic and its brokers: the settings of clients, and their messages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use rdkafka::{ClientContext, Message};

use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::run::outbox::Outage;

/// Locks data that clients' threads share.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has reported it; the job ends.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A topic and how to reach it.
#[derive(Debug, Clone)]
pub struct Broker {
    /// The table that is connected to it, for errors.
    pub table: String,
    /// The topic.
    pub topic: String,
    /// The brokers.
    pub servers: String,
    settings: Vec<(String, String)>,
}

/// Settings that `properties.*` must not change, because writing and reading depend on them.
const OWN: [&str; 7] = [
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "message.timeout.ms",
    "transactional.id",
];

impl Broker {
    /// From a table's options.
    pub fn of(table: &Table) -> Result<Broker> {
        let option = |name: &str| {
            table.options.get(name).cloned().ok_or_else(|| {
                Error::invalid(
                    format!("no option '{name}' for `{}`", table.name),
                    format!("'{name}' = '...' in WITH (...)"),
                )
            })
        };
        let topic = option("topic")?;
        if topic.contains(';') {
            return Err(Error::unsupported(format!(
                "several topics in 'topic' = '{topic}' of `{}`",
                table.name
            ))
            .hint("a table for each, and UNION ALL"));
        }
        let servers = option("properties.bootstrap.servers")?;
        let mut settings = Vec::new();
        for (option, value) in &table.options {
            let Some(setting) = option.strip_prefix("properties.") else { continue };
            if OWN.contains(&setting) {
                return Err(Error::invalid(
                    format!("'{option}' of `{}`", table.name),
                    "other properties: this one is the connector's own",
                ));
            }
            settings.push((setting.to_owned(), value.clone()));
        }
        Ok(Broker { table: table.name.clone(), topic, servers, settings })
    }

    /// The settings of a client: the table's, overridden by these.
    pub fn client(&self, own: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (setting, value) in &self.settings {
            config.set(setting, value);
        }
        for (setting, value) in own {
            config.set(*setting, *value);
        }
        // The context receives errors; a library must not write to the terminal.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        config
    }

    /// An error of this topic.
    pub fn failed(&self, what: &str, why: impl std::fmt::Display) -> Error {
        let Broker { table, topic, servers, .. } = self;
        Error::connector(format!("cannot {what} topic {topic} at {servers} for `{table}`: {why}"))
    }
}

/// Receives the messages of clients.
#[derive(Debug, Default)]
pub struct Context {
    outage: Outage,
    /// The first message that could not be delivered.
    pub lost: Mutex<Option<KafkaError>>,
}

impl Context {
    /// A context that reports outages.
    pub fn of(outage: &Outage) -> Context {
        Context { outage: outage.clone(), lost: Mutex::new(None) }
    }
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, reason: &str) {
        self.outage.is(reason);
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.outage.is_over(),
            Err((error, _)) => {
                lock(&self.lost).get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// The position of a message, for errors.
pub fn place_of(message: &impl Message) -> String {
    format!("topic {}, partition {}, offset {}", message.topic(), message.partition(), message.offset())
}
