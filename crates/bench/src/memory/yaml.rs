//! A YAML file as a tree whose every node knows its line.
//!
//! Workload files are mappings, lists and scalars, and nothing else. Tags and merge keys mean nothing here and are
//! refused; anchors and aliases work. Every scalar is kept as its text, so `10G` and `010` stay as written.

use crate::memory::error::{Error, Result};
use saphyr_parser::{Event, Marker, Parser, Span};
use std::collections::HashMap;

// 32: a workload is five levels deep; a much deeper file is an attack on the stack.
const DEPTH_MAX: usize = 32;
// Aliases of aliases grow without bound in a file of a few lines.
const NODES_MAX: usize = 100_000;

/// A value and its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(String),
    List(Vec<Node>),
    /// Keys with their lines, in the order of the file.
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) line: usize,
    pub(crate) name: String,
}

/// A place in a file, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'f> {
    pub(crate) file: &'f str,
    pub(crate) line: usize,
}

impl Place<'_> {
    pub(crate) fn error(self, what: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}:{}: {what}", self.file, self.line))
    }
}

impl Value {
    /// What this is, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Reads one document. An empty file is an empty mapping.
///
/// # Errors
/// `file:line:` and the error.
pub(crate) fn parse(file: &str, text: &str) -> Result<Node> {
    let mut reader = Reader { file, events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => {
                let place = reader.place(span.start);
                if root.is_some() {
                    return Err(place.error("a second document begins here; put all benchmarks into one"));
                }
                root = Some(reader.node(event, span, 0)?);
            }
        }
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Map(Vec::new()) }))
}

struct Reader<'t> {
    file: &'t str,
    events: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'t> Reader<'t> {
    fn place(&self, marker: Marker) -> Place<'t> {
        Place { file: self.file, line: marker.line().max(1) }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span)> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self
                .place(*error.marker())
                .error(format!("not YAML: {}; indent with spaces, two for each level", error.info()))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node> {
        let place = self.place(span.start);
        self.nodes += 1;
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(place.error("nested too deeply, or too large, for a workload"));
        }
        let tagged = |tag: bool| match tag {
            true => Err(place.error("a YAML tag means nothing here; remove it")),
            false => Ok(()),
        };
        let (value, anchor) = match event {
            Event::Scalar(text, _, anchor, tag) => {
                tagged(tag.is_some())?;
                (Value::Scalar(text.into_owned()), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                tagged(tag.is_some())?;
                (Value::List(self.list(depth)?), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                tagged(tag.is_some())?;
                (Value::Map(self.map(depth)?), anchor)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| place.error("an alias to itself; name a finished value"))?;
                self.nodes += size(&node);
                return Ok(node);
            }
            _ => return Err(place.error("not YAML: a value is missing")),
        };
        let node = Node { line: place.line, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>> {
        let mut list = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(list);
            }
            list.push(self.node(event, span, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>> {
        let mut map: Vec<(Key, Node)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(map);
            }
            let key = self.node(event, span, depth + 1)?;
            let place = Place { file: self.file, line: key.line };
            let Value::Scalar(name) = key.value else {
                return Err(place.error(format!("a key is {}, wanted a word", key.value.name())));
            };
            if name == "<<" {
                return Err(place.error("merge keys are not supported; write the arguments out"));
            }
            if let Some((first, _)) = map.iter().find(|(known, _)| known.name == name) {
                return Err(
                    place.error(format!("`{name}` is given twice, first in line {}; remove one", first.line))
                );
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            map.push((Key { line: place.line, name }, value));
        }
    }
}

/// Nodes of a tree.
fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Scalar(_) => 0,
        Value::List(list) => list.iter().map(size).sum(),
        Value::Map(map) => map.iter().map(|(_, node)| 1 + size(node)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        parse("a.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn nodes_know_their_lines() {
        let root = parse("a.yaml", "# head\na:\n  b: [1, 2]\n  c: \"10G\"\n").unwrap();
        let Value::Map(map) = root.value else { panic!() };
        assert_eq!((map[0].0.name.as_str(), map[0].0.line), ("a", 2));
        let Value::Map(inner) = &map[0].1.value else { panic!() };
        assert_eq!(inner[0].1.line, 3);
        assert!(matches!(&inner[1].1.value, Value::Scalar(text) if text == "10G"));
    }

    #[test]
    fn wrong_yaml_names_file_and_line() {
        assert!(error("a: 1\nb: [1, 2\nc: 3\n").starts_with("a.yaml:"));
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "a.yaml:3: `a` is given twice, first in line 1; remove one");
        assert!(error("a: !!int 3\n").contains("a.yaml:1: a YAML tag"));
        assert!(error("? [1]\n: 2\n").contains("wanted a word"));
        assert!(error("a: 1\n---\nb: 2\n").contains("second document"));
    }

    #[test]
    fn aliases_work_and_cannot_explode() {
        let root = parse("a.yaml", "a: &x [1, 2]\nb: *x\n").unwrap();
        assert_eq!(size(&root), 1 + 2 * 4);
        let mut bomb = "a0: &a0 [1,2,3,4,5,6,7,8,9]\n".to_owned();
        for i in 1..12 {
            let alias = format!("*a{},", i - 1).repeat(9);
            bomb.push_str(&format!("a{i}: &a{i} [{alias}]\n"));
        }
        assert!(error(&bomb).contains("too large"));
    }

    proptest! {
        #[test]
        fn no_yaml_text_causes_a_panic(text in "\\PC{0,200}") {
            let _ = parse("a.yaml", &text);
        }
    }
}
