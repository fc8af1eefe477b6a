//! The payload of lists.
//!
//! | RDB type | what follows |
//! |---|---|
//! | 1 | how many elements, and each as a string |
//! | 18 | how many nodes, and of each its kind and a string: with kind 1 an element, with kind 2 a [`listpack`] of elements |
//!
//! Redis makes a new node where the one at that end would become longer than [`NODE_BYTES_MAX`]: which elements a node has
//! depends on how the list was filled. Here it is as if it had been filled at the right end.

use super::{Restored, decode, decode_len, encode, encode_len, listpack, signed};

const TYPE_LIST: u8 = 1;
const TYPE_LIST_QUICKLIST: u8 = 18;
/// Those of the table.
pub(super) const TYPES: [u8; 2] = [TYPE_LIST, TYPE_LIST_QUICKLIST];

const NODE_ELEMENT: u64 = 1;
const NODE_LISTPACK: u64 = 2;
// `list-max-listpack-size` -2.
const NODE_BYTES_MAX: usize = 8192;
// What Redis reckons that an element takes besides its bytes (`SIZE_ESTIMATE_OVERHEAD`).
const ELEMENT_OVERHEAD_BYTES: usize = 8;

/// The payload for a list.
pub fn list(elements: &[&[u8]]) -> Vec<u8> {
    let mut nodes = Vec::new();
    let mut node = listpack::Builder::default();
    for element in elements {
        let grown = node.bytes() + element.len() + ELEMENT_OVERHEAD_BYTES;
        if !node.is_empty() && grown > NODE_BYTES_MAX {
            nodes.push(std::mem::take(&mut node).finish());
        }
        node.push(element);
    }
    nodes.push(node.finish());
    let mut out = vec![TYPE_LIST_QUICKLIST];
    encode_len(nodes.len() as u64, &mut out);
    for node in nodes {
        encode_len(NODE_LISTPACK, &mut out);
        encode(&node, &mut out);
    }
    signed(out)
}

/// The list in the body of a payload of this type; `None` for what is none, or has no elements.
pub(super) fn restore(rdb_type: u8, mut rest: &[u8], bytes_max: u64) -> Option<Restored> {
    let rest = &mut rest;
    let mut elements = Vec::new();
    for _ in 0..decode_len(rest)? {
        let kind = if rdb_type == TYPE_LIST { NODE_ELEMENT } else { decode_len(rest)? };
        let string = decode(rest, bytes_max)?;
        match kind {
            NODE_ELEMENT => elements.push(string),
            NODE_LISTPACK => elements.extend(listpack::decode(&string)?),
            _ => return None,
        }
    }
    (rest.is_empty() && !elements.is_empty()).then_some(Restored::List(elements))
}
