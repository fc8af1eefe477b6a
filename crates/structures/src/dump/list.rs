//! The payload of lists.
//!
//! | RDB type | contents |
//! |---|---|
//! | 1 | how many elements, and each as a string |
//! | 10 | a string: a [`ziplist`] of elements; until Redis 3.0 |
//! | 14 | how many nodes, and each as a string: a ziplist of elements; until Redis 6.2 |
//! | 18 | how many nodes, and of each its kind and a string: with kind 1 an element, with kind 2 a [`listpack`] of elements |
//!
//! Redis makes a new node when the one at that end would become longer than [`NODE_BYTES_MAX`], so the nodes depend on
//! how the list was filled. Here they are as if it had been filled at the right end.

use super::input::Input;
use super::{Restored, decode, decode_len, encode, encode_len, ziplist};
use crate::listpack;

const TYPE_LIST: u8 = 1;
const TYPE_LIST_ZIPLIST: u8 = 10;
const TYPE_LIST_ZIPLISTS: u8 = 14;
const TYPE_LIST_QUICKLIST: u8 = 18;
/// Those of the table.
pub(super) const TYPES: [u8; 4] = [TYPE_LIST, TYPE_LIST_ZIPLIST, TYPE_LIST_ZIPLISTS, TYPE_LIST_QUICKLIST];

const NODE_ELEMENT: u64 = 1;
const NODE_LISTPACK: u64 = 2;
// The older types, which are never written.
const NODE_ZIPLIST: u64 = u64::MAX;
// `list-max-listpack-size` -2.
const NODE_BYTES_MAX: usize = 8192;
// Redis's estimate of an element's overhead (`SIZE_ESTIMATE_OVERHEAD`).
const ELEMENT_OVERHEAD_BYTES: usize = 8;

/// Type and value of a list.
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
    out
}

/// Reads the list of this type; `None` if it is malformed.
pub(super) fn read(rdb_type: u8, rest: &mut Input<'_>, bytes_max: u64) -> Option<Restored> {
    let mut elements = Vec::new();
    let nodes = if rdb_type == TYPE_LIST_ZIPLIST { 1 } else { decode_len(rest)? };
    for _ in 0..nodes {
        let kind = match rdb_type {
            TYPE_LIST => NODE_ELEMENT,
            TYPE_LIST_QUICKLIST => decode_len(rest).filter(|&kind| kind != NODE_ZIPLIST)?,
            _ => NODE_ZIPLIST,
        };
        let string = decode(rest, bytes_max)?;
        match kind {
            NODE_ELEMENT => elements.push(string),
            NODE_LISTPACK => elements.extend(listpack::decode(&string)?),
            NODE_ZIPLIST => elements.extend(ziplist::decode(&string)?),
            _ => return None,
        }
    }
    Some(Restored::List(elements))
}
