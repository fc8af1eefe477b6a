//! Nexmark's stream: people, auctions and bids of an auction house in the ratio 1 : 3 : 46, computed with integers
//! only.
//!
//! Event `n` is a function of `n` and the seed, so that any part of the stream can be generated. Time advances by
//! [`EVENT_MICROS`] with every event and is never computed in floating point.

use crate::plan::reference::Arrival;
use crate::types::{Row, Value};

/// Microseconds from event to event.
pub const EVENT_MICROS: i64 = 10_000;
/// 2020-01-01 00:00:00 UTC.
pub const BEGIN_MICROS: i64 = 1_577_836_800_000_000;
/// Events after which the kinds repeat: one person, three auctions, bids.
const ROUND: u64 = 50;
const AUCTIONS: u64 = 3;
/// Events refer to this many of the newest people and auctions.
const ACTIVE: u64 = 100;

/// The tables of the benchmark's queries.
pub const TABLES: &str = "
CREATE TABLE person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, dateTime TIMESTAMP(3),
  extra STRING, WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark');
CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP(3),
  expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark');
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP(3), extra STRING,
  p AS PROCTIME(), WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark');
";

/// The columns of a table's rows, in order; `None` for an unknown table.
pub fn columns(table: &str) -> Option<&'static [&'static str]> {
    Some(match table {
        "person" => &["id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"],
        "auction" => &[
            "id",
            "itemName",
            "description",
            "initialBid",
            "reserve",
            "dateTime",
            "expires",
            "seller",
            "category",
            "extra",
        ],
        "bid" => &["auction", "bidder", "price", "channel", "url", "dateTime", "extra"],
        _ => return None,
    })
}

/// A generator of the stream of one seed.
#[derive(Debug, Clone, Copy)]
pub struct Generator {
    seed: u64,
}

impl Generator {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Generator { seed }
    }

    /// A number determined by seed, event and use.
    // The finaliser of SplitMix64: each bit of the input changes about half of the output's bits.
    fn random(self, event: u64, purpose: u64) -> u64 {
        let mut z = self.seed
            ^ event.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(self, event: u64, purpose: u64, limit: u64) -> u64 {
        self.random(event, purpose) % limit.max(1)
    }

    /// The event with this number.
    pub fn event(self, number: u64) -> Arrival {
        let clock = BEGIN_MICROS + number as i64 * EVENT_MICROS;
        let (round, place) = (number / ROUND, number % ROUND);
        let (table, row) = match place {
            0 => ("person", self.person(number, round, clock)),
            1..=AUCTIONS => ("auction", self.auction(number, round * AUCTIONS + place - 1, round, clock)),
            _ => ("bid", self.bid(number, round, clock)),
        };
        Arrival { table: table.to_owned(), row, clock }
    }

    /// One of the newest people: ids begin at 1000.
    fn some_person(self, number: u64, round: u64) -> Value {
        Value::Int((1000 + round - self.below(number, 1, ACTIVE.min(round + 1))) as i64)
    }

    fn extra(self, number: u64) -> Value {
        let letters = (0..10).map(|place| char::from(b'a' + self.below(number, 100 + place, 26) as u8));
        Value::string(letters.collect::<String>())
    }

    fn person(self, number: u64, round: u64, clock: i64) -> Row {
        const NAMES: [&str; 6] =
            ["Peter Jones", "Ada Smith", "Kate Walton", "Vicky Noris", "Saul Bartels", "John Spencer"];
        const CITIES: [(&str, &str); 6] = [
            ("Portland", "OR"),
            ("Boise", "ID"),
            ("Los Angeles", "CA"),
            ("Phoenix", "AZ"),
            ("Bend", "OR"),
            ("Kent", "WA"),
        ];
        let name = NAMES[self.below(number, 2, 6) as usize];
        let (city, state) = CITIES[self.below(number, 3, 6) as usize];
        let card: Vec<String> =
            (0..4).map(|part| format!("{:04}", self.below(number, 10 + part, 10_000))).collect();
        vec![
            Value::Int((1000 + round) as i64),
            Value::string(name),
            Value::string(format!("{}@example.com", name.to_lowercase().replace(' ', "."))),
            Value::string(card.join(" ")),
            Value::string(city),
            Value::string(state),
            Value::Int(clock / 1000 * 1000),
            self.extra(number),
        ]
    }

    fn auction(self, number: u64, index: u64, round: u64, clock: i64) -> Row {
        let price = self.price(number);
        let expires = clock + 1_000_000 + self.below(number, 4, 20_000) as i64 * 1000;
        vec![
            Value::Int((1000 + index) as i64),
            Value::string(format!("item {}", self.below(number, 5, 1000))),
            Value::string(format!("description {}", self.below(number, 6, 1000))),
            Value::Int(price),
            Value::Int(price + self.price(number + 1)),
            Value::Int(clock / 1000 * 1000),
            Value::Int(expires / 1000 * 1000),
            self.some_person(number, round),
            Value::Int((10 + self.below(number, 7, 5)) as i64),
            self.extra(number),
        ]
    }

    /// From 1 to about ten million cents; each power of two is equally frequent.
    fn price(self, number: u64) -> i64 {
        let power = self.below(number, 8, 23);
        ((1 << power) + self.below(number, 9, 1 << power)) as i64
    }

    fn bid(self, number: u64, round: u64, clock: i64) -> Row {
        const CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
        let newest = (round + 1) * AUCTIONS - 1;
        // Every other bid is for the hot auction.
        let auction = if self.below(number, 20, 2) == 0 {
            newest / 10 * 10
        } else {
            newest - self.below(number, 21, ACTIVE.min(newest + 1))
        };
        let (channel, url) = match self.below(number, 22, 2) {
            0 => {
                let channel = CHANNELS[self.below(number, 23, 4) as usize];
                (
                    channel.to_owned(),
                    format!("https://www.nexmark.com/{}/item.htm?query=1", channel.to_lowercase()),
                )
            }
            _ => {
                let id = self.below(number, 24, 10_000);
                let path = format!("https://www.nexmark.com/a{}/b{}/c/item.htm?query=1", id % 7, id % 5);
                (format!("channel-{id}"), format!("{path}&channel_id={id}"))
            }
        };
        vec![
            Value::Int((1000 + auction) as i64),
            self.some_person(number, round),
            Value::Int(self.price(number)),
            Value::string(channel),
            Value::string(url),
            Value::Int(clock / 1000 * 1000),
            self.extra(number),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_ratio_1_to_3_to_46_and_ascending_times() {
        let generator = Generator::new(1);
        let events: Vec<Arrival> = (0..5000).map(|number| generator.event(number)).collect();
        let count = |table: &str| events.iter().filter(|event| event.table == table).count();
        assert_eq!((count("person"), count("auction"), count("bid")), (100, 300, 4600));
        assert!(events.windows(2).all(|pair| pair[0].clock < pair[1].clock));
        let people: Vec<&Value> =
            events.iter().filter(|event| event.table == "person").map(|event| &event.row[0]).collect();
        let sellers = events.iter().filter(|event| event.table == "auction").map(|event| &event.row[7]);
        assert!(sellers.into_iter().all(|seller| people.contains(&seller)), "every seller has come before");
    }
}
