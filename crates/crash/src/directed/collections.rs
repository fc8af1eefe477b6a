//! Collections: what names them, and what is shown of them.

use super::{IMAGES_AT_ONCE, LEN_MAX, options, told};
use duramen::{Batch, Durability, ElementOrder, Meta, StoreOn};
use duramen_media::sim::{Log, Model, Rng, SimMedium, Walker};

/// A writer makes a collection within a group; another one, which holds the key then, gives it another name, before that group is
/// settled. Power fails anywhere.
///
/// # Errors
/// What is wrong.
pub fn renamed_before_settled() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(told)?;
    let keys = [&b"one"[..], b"two"];
    let elements = store.new_collection(ElementOrder::Unordered);
    let root = Meta { collection: Some(elements.id()), ..Meta::default() };
    let mut writer = store.writer().map_err(told)?;
    writer.group();
    let made = writer.locked(keys, |writer| {
        writer.unit(|unit| {
            unit.store().put_with(keys[0], b"", root)?;
            unit.collection(&elements).put(b"element", &[1; 100])
        })
    });
    made.map_err(told)?;
    let rename = || -> duramen::Result<()> {
        let mut writer = store.writer()?;
        writer.locked(keys, |writer| {
            let found = writer.get(keys[0])?.map(|found| found.meta());
            let mut batch = Batch::new();
            batch.delete(keys[0]).put_with(keys[1], b"", found.unwrap_or_default());
            writer.apply(&batch).map(|_| ())
        })
    };
    // Another thread: what it drains is its own.
    std::thread::scope(|scope| scope.spawn(rename).join())
        .map_err(|_| "the rename panicked".to_owned())?
        .map_err(told)?;
    writer.settle().map_err(told)?;
    let log = medium.log();
    let mut walker = Walker::new(&log);
    let mut rng = Rng::new(1);
    while let Some(at) = walker.next_point() {
        for choice in walker.choices(&mut rng, IMAGES_AT_ONCE) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
            let found = StoreOn::open_on(image, &options(2, Durability::EveryWrite)).map_err(told)?;
            let mut places = Vec::new();
            for key in keys {
                let names = found.get(key).map_err(told)?.and_then(|root| root.meta().collection);
                let elements = names.map(|names| found.collection(names)).transpose().map_err(told)?;
                places.push(elements.map(|elements| elements.len()));
            }
            if !matches!(places[..], [None, None] | [Some(1), None] | [None, Some(1)]) {
                return Err(format!("at event {at} elements are under the keys: {places:?}"));
            }
        }
    }
    Ok(())
}
