//! Writes lines to a connection.

use super::stream::{Socket, Stream};
use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::formats::{Format, Writing};
use crate::run::records::Place;
use crate::run::row_sink::RowSink;

/// A sink.
pub struct Sender {
    socket: Socket,
    stream: Option<Stream>,
    writing: Writing,
    table: String,
}

impl Sender {
    /// For a table of connector 'socket'; it connects when the first row comes.
    pub fn open(table: &Table, place: Place<'_>) -> Result<Sender> {
        let writing = Writing::new(Format::of(table)?, table);
        Ok(Sender { socket: Socket::of(table, place)?, stream: None, writing, table: table.name.clone() })
    }
}

impl Output for Sender {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.socket.connect_patiently(&self.table)?,
        };
        stream.write_all(self.writing.text(rows)?.as_bytes()).map_err(|error| {
            Error::connector(format!("cannot write to the socket of `{}`: {error}", self.table))
        })?;
        self.stream = Some(stream);
        Ok(())
    }
}

impl RowSink for Sender {}
