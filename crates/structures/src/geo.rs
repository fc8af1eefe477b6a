//! Places on the earth as scores of a sorted set, and searches around a place.
//!
//! The earth's longitudes and latitudes (only the latitudes of a Mercator map) are halved `STEPS` times each. The
//! alternating bits that give the halves of a place are its score: 52 bits, which fit into a double. So each *cell* of
//! a coarser division is a range of scores. If cells are as large as the search, all places near a point are in its
//! cell or in the eight around it. This, and the order in which a search visits the cells, is as in Redis, so that
//! scores and replies are the same.

use std::f64::consts::PI;

/// How often the earth is halved in each direction.
const STEPS: u32 = 26;
const LONGITUDE: Range = Range { min: -180.0, max: 180.0 };
/// EPSG:3857.
const LATITUDE: Range = Range { min: -85.051_128_78, max: 85.051_128_78 };
/// Of a geohash as others have it.
const LATITUDE_WHOLE: Range = Range { min: -90.0, max: 90.0 };
const EARTH_RADIUS_METERS: f64 = 6_372_797.560_856;
/// Half of the earth's circumference on a Mercator map.
const MERCATOR_MAX_METERS: f64 = 20_037_726.37;
const GEOHASH_ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
const GEOHASH_LETTERS: u32 = 11;

#[derive(Clone, Copy)]
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    fn has(self, at: f64) -> bool {
        at >= self.min && at <= self.max
    }

    /// Which of 2^`steps` equal parts `at` is in.
    fn part(self, at: f64, steps: u32) -> u32 {
        ((at - self.min) / (self.max - self.min) * (1u64 << steps) as f64) as u32
    }

    /// One of 2^`steps` equal parts.
    fn of_part(self, part: u32, steps: u32) -> Self {
        let width = self.max - self.min;
        let edge = |part: f64| self.min + part / (1u64 << steps) as f64 * width;
        Self { min: edge(f64::from(part)), max: edge(f64::from(part) + 1.0) }
    }

    fn middle(self) -> f64 {
        (self.min + self.max) / 2.0
    }
}

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Degrees east.
    pub longitude: f64,
    /// Degrees north.
    pub latitude: f64,
}

impl Place {
    /// Whether it can be kept: not near a pole.
    pub fn is_valid(self) -> bool {
        LONGITUDE.has(self.longitude) && LATITUDE.has(self.latitude)
    }

    /// Its score: that of the smallest cell that it is in.
    pub fn score(self) -> f64 {
        Cell::of(self, STEPS).bits() as f64
    }

    /// The middle of the smallest cell with this score, which may be that of any member of a sorted set.
    pub fn of_score(score: f64) -> Self {
        let bits = score as u64;
        let cell = Cell { longitude: gather(bits >> 1), latitude: gather(bits), steps: STEPS };
        let (longitude, latitude) = (cell.longitudes().middle(), cell.latitudes().middle());
        Self {
            longitude: longitude.clamp(LONGITUDE.min, LONGITUDE.max),
            latitude: latitude.clamp(LATITUDE.min, LATITUDE.max),
        }
    }

    /// Its geohash, in letters, as others have it.
    pub fn geohash(self) -> String {
        let (longitude, latitude) =
            (LONGITUDE.part(self.longitude, STEPS), LATITUDE_WHOLE.part(self.latitude, STEPS));
        let bits = Cell { longitude, latitude, steps: STEPS }.bits();
        let letter = |at: u32| {
            // 52 bits are ten letters and two bits; Redis has a 0 instead of those.
            let shift = (2 * STEPS).checked_sub(5 * (at + 1));
            char::from(GEOHASH_ALPHABET[shift.map_or(0, |shift| (bits >> shift & 31) as usize)])
        };
        (0..GEOHASH_LETTERS).map(letter).collect()
    }

    /// Meters to another place, along the surface of a sphere.
    pub fn meters_to(self, other: Self) -> f64 {
        let (from, to) = (self.longitude.to_radians_c(), other.longitude.to_radians_c());
        let across = ((to - from) / 2.0).sin();
        if across == 0.0 {
            return self.meters_north(other);
        }
        let (from, to) = (self.latitude.to_radians_c(), other.latitude.to_radians_c());
        let along = ((to - from) / 2.0).sin();
        let haversine = along * along + from.cos() * to.cos() * across * across;
        2.0 * EARTH_RADIUS_METERS * haversine.sqrt().asin()
    }

    /// Meters between the latitudes of two places.
    fn meters_north(self, other: Self) -> f64 {
        EARTH_RADIUS_METERS * (other.latitude.to_radians_c() - self.latitude.to_radians_c()).abs()
    }
}

/// Degrees and radians, rounded as in C: `f64::to_radians` may differ in the last bit.
trait Angle {
    fn to_radians_c(self) -> f64;
    fn to_degrees_c(self) -> f64;
}

impl Angle for f64 {
    fn to_radians_c(self) -> f64 {
        self * (PI / 180.0)
    }

    fn to_degrees_c(self) -> f64 {
        self / (PI / 180.0)
    }
}

/// One part of the earth when it was halved some times.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    longitude: u32,
    latitude: u32,
    steps: u32,
}

impl Cell {
    fn of(place: Place, steps: u32) -> Self {
        let (longitude, latitude) =
            (LONGITUDE.part(place.longitude, steps), LATITUDE.part(place.latitude, steps));
        Self { longitude, latitude, steps }
    }

    fn bits(self) -> u64 {
        spread(self.longitude) << 1 | spread(self.latitude)
    }

    fn longitudes(self) -> Range {
        LONGITUDE.of_part(self.longitude, self.steps)
    }

    fn latitudes(self) -> Range {
        LATITUDE.of_part(self.latitude, self.steps)
    }

    /// The cell so many cells east and north, around the earth.
    fn beside(self, east: i32, north: i32) -> Self {
        let mask = (1u32 << self.steps) - 1;
        let longitude = self.longitude.wrapping_add_signed(east) & mask;
        let latitude = self.latitude.wrapping_add_signed(north) & mask;
        Self { longitude, latitude, ..self }
    }

    /// The scores in it: from the first to below the second.
    fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEPS - self.steps);
        let first = self.bits() << shift;
        (first as f64, (first + (1 << shift)) as f64)
    }
}

/// Puts a zero bit above each bit.
fn spread(bits: u32) -> u64 {
    (0..u32::BITS).fold(0, |sum, at| sum | u64::from(bits >> at & 1) << (2 * at))
}

/// Every other bit, from the lowest on.
fn gather(bits: u64) -> u32 {
    (0..u32::BITS).fold(0, |sum, at| sum | ((bits >> (2 * at)) as u32 & 1) << at)
}

/// The area of a search, around a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A circle.
    Circle {
        /// In meters.
        radius: f64,
    },
    /// A rectangle between meridians and parallels.
    Box {
        /// In meters.
        width: f64,
        /// In meters.
        height: f64,
    },
}

/// A search around a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The place in the middle.
    pub from: Place,
    /// What lies in this is found.
    pub shape: Shape,
}

impl Search {
    /// Meters from the middle to a place, if that is found.
    pub fn meters_to(&self, place: Place) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => Some(self.from.meters_to(place)).filter(|meters| *meters <= radius),
            Shape::Box { width, height } => {
                if self.from.meters_north(place) > height / 2.0 {
                    return None;
                }
                let across = Place { longitude: self.from.longitude, latitude: place.latitude };
                (place.meters_to(across) <= width / 2.0).then(|| self.from.meters_to(place))
            }
        }
    }

    /// Ranges of scores that have all that is found, in the order in which they are searched: from one score to below another.
    pub fn scores(&self) -> Vec<(f64, f64)> {
        let (west, south, east, north) = self.bounds();
        let mut steps = self.steps();
        let mut middle = Cell::of(self.from, steps);
        let is_too_small = middle.beside(0, 1).latitudes().max < north
            || middle.beside(0, -1).latitudes().min > south
            || middle.beside(1, 0).longitudes().max < east
            || middle.beside(-1, 0).longitudes().min > west;
        if steps > 1 && is_too_small {
            steps -= 1;
            middle = Cell::of(self.from, steps);
        }
        let (across, along) = (middle.longitudes(), middle.latitudes());
        // Where the middle cell reaches beyond the search, the cells on that side have nothing.
        let is_needed = |east_by: i32, north_by: i32| {
            let covered = north_by < 0 && along.min < south
                || north_by > 0 && along.max > north
                || east_by < 0 && across.min < west
                || east_by > 0 && across.max > east;
            steps < 2 || !covered
        };
        let around = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells = vec![middle];
        for (east_by, north_by) in around {
            let cell = middle.beside(east_by, north_by);
            // Where cells are that large the same one comes again, around the earth.
            if is_needed(east_by, north_by) && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }

    /// The degrees that it lies between: west, south, east, north.
    fn bounds(&self) -> (f64, f64, f64, f64) {
        let (across, along) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Place { longitude, latitude } = self.from;
        let north = (along / EARTH_RADIUS_METERS).to_degrees_c();
        // Meridians are nearest to each other where it reaches farthest from the equator.
        let farthest = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = (across / EARTH_RADIUS_METERS / farthest.to_radians_c().cos()).to_degrees_c();
        (longitude - east, latitude - north, longitude + east, latitude + north)
    }

    /// How often the earth is halved for cells as large as the search.
    fn steps(&self) -> u32 {
        let mut meters = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => ((width / 2.0).powi(2) + (height / 2.0).powi(2)).sqrt(),
        };
        if meters == 0.0 {
            return STEPS;
        }
        let mut steps: i32 = 1;
        while meters < MERCATOR_MAX_METERS {
            meters *= 2.0;
            steps += 1;
        }
        // So that the search is within the cells around in most cases.
        steps -= 2;
        let from_equator = self.from.latitude.abs();
        steps -= i32::from(from_equator > 66.0) + i32::from(from_equator > 80.0);
        steps.clamp(1, STEPS as i32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const PALERMO: Place = Place { longitude: 13.361_389, latitude: 38.115_556 };
    const CATANIA: Place = Place { longitude: 15.087_269, latitude: 37.502_669 };

    #[test]
    fn scores_and_distances_are_those_of_redis() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698.0);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909.0);
        let (palermo, catania) = (Place::of_score(PALERMO.score()), Place::of_score(CATANIA.score()));
        assert_eq!(format!("{:.4}", palermo.meters_to(catania)), "166274.1516");
        assert_eq!((palermo.geohash().as_str(), catania.geohash().as_str()), ("sqc8b49rny0", "sqdtr74hyu0"));
    }

    #[test]
    fn a_geo_search_covers_every_member_in_its_area() {
        let random = &mut Random::new(7);
        let mut fraction = || random.below(1 << 40) as f64 / (1u64 << 40) as f64;
        let mut found = 0;
        for _ in 0..20_000 {
            // Not across the poles and the date line, where Redis does not look either.
            let from = Place { longitude: fraction() * 340.0 - 170.0, latitude: fraction() * 130.0 - 65.0 };
            let meters = 10f64.powf(fraction() * 5.0);
            let shape = if fraction() < 0.5 {
                Shape::Circle { radius: meters }
            } else {
                Shape::Box { width: meters, height: meters * fraction() * 2.0 }
            };
            let search = Search { from, shape };
            let degrees = meters / 50_000.0;
            let near = Place {
                longitude: from.longitude + (fraction() - 0.5) * degrees,
                latitude: from.latitude + (fraction() - 0.5) * degrees,
            };
            let score = near.score();
            if search.meters_to(Place::of_score(score)).is_some() {
                found += 1;
                let scores = search.scores();
                assert!(scores.iter().any(|(min, max)| (*min..*max).contains(&score)), "{search:?} {near:?}");
            }
        }
        assert!(found > 1000, "{found}");
    }
}
