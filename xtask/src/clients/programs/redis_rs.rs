// redis-rs: pipelines, transactions, messages, blocking commands, consumer groups of streams, SCAN.
use redis::{Commands, RedisResult, streams::StreamReadReply};
use std::collections::BTreeMap;
use std::time::Duration;

fn main() -> RedisResult<()> {
    let port = std::env::var("PORT").expect("PORT");
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let mut r = client.get_connection()?;
    let () = redis::cmd("FLUSHALL").query(&mut r)?;
    let mut pipe = redis::pipe();
    for at in 0..1000 {
        pipe.set(format!("key:{at}"), at).ignore();
    }
    let () = pipe.query(&mut r)?;
    let (one, six): (i64, i64) = redis::pipe().atomic().incr("n", 1).incr("n", 5).query(&mut r)?;
    assert_eq!((one, six), (1, 6));
    let () = r.hset_multiple("h", &[("a", 1), ("b", 2)])?;
    assert_eq!(r.hgetall::<_, BTreeMap<String, i64>>("h")?, BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
    let () = r.zadd_multiple("z", &[(1.0, "one"), (2.5, "two")])?;
    assert_eq!(r.zrange_withscores::<_, Vec<(String, f64)>>("z", 0, -1)?, [("one".into(), 1.0), ("two".into(), 2.5)]);
    assert_eq!(r.scan_match::<_, String>("key:*")?.filter(|key| !format!("{key:?}").is_empty()).count(), 1000);
    let mut own = client.get_connection()?;
    let mut listener = own.as_pubsub();
    listener.subscribe("c")?;
    listener.set_read_timeout(Some(Duration::from_secs(5)))?;
    let () = r.publish("c", "hello")?;
    assert_eq!(listener.get_message()?.get_payload::<String>()?, "hello");
    let mut other = client.get_connection()?;
    let pushes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        other.rpush::<_, _, ()>("queue", "job")
    });
    assert_eq!(r.blpop::<_, (String, String)>("queue", 5.0)?, ("queue".into(), "job".into()));
    pushes.join().expect("a thread")?;
    let () = r.xgroup_create_mkstream("stream", "group", "0")?;
    let id: String = r.xadd("stream", "*", &[("a", 1)])?;
    let read: StreamReadReply =
        redis::cmd("XREADGROUP").arg(&["GROUP", "group", "me", "STREAMS", "stream", ">"]).query(&mut r)?;
    assert_eq!(read.keys[0].ids[0].id, id);
    assert_eq!(r.xack::<_, _, _, i64>("stream", "group", &[&id])?, 1);
    assert!(r.incr::<_, _, i64>("h", 1).is_err());
    Ok(())
}
