//! The arena: pages of all classes, taken and given back.

use crate::collection::pages::{Account, Arena, Class, Pages};
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

const CASES: u32 = if cfg!(miri) { 2 } else { 64 };

pub(super) fn pages() -> Pages {
    Pages::new(Arc::new(Arena::default()), Arc::new(Account::default()))
}

/// Stores `word` all over the page.
fn mark(pages: &Pages, page: u32, class: Class, word: u64) {
    pages.words(page, class.words()).iter().for_each(|at| at.store(word, Relaxed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_page_is_zeroed_when_taken_and_has_one_owner_until_returned(
        steps in prop::collection::vec((0..7u32, any::<usize>(), any::<bool>()), 1..if cfg!(miri) { 40 } else { 2_000 })
    ) {
        let arena = Arc::new(Arena::default());
        let accounts = [Arc::new(Account::default()), Arc::new(Account::default())];
        let mut owners = accounts.clone().map(|account| Pages::new(Arc::clone(&arena), account));
        let mut taken: Vec<(usize, u32, Class, u64)> = Vec::new();
        for (step, (doublings, pick, take)) in steps.into_iter().enumerate() {
            if take || taken.is_empty() {
                let (owner, class) = (pick % 2, Class::doubled(doublings));
                let page = owners[owner].take(class);
                prop_assert!(owners[owner].words(page, class.words()).iter().all(|word| word.load(Relaxed) == 0));
                mark(&owners[owner], page, class, step as u64 + 1);
                taken.push((owner, page, class, step as u64 + 1));
            } else {
                let (owner, page, class, word) = taken.swap_remove(pick % taken.len());
                prop_assert!(owners[owner].words(page, class.words()).iter().all(|at| at.load(Relaxed) == word));
                owners[owner].give(page, class);
            }
        }
        arena.check();
        for (owner, account) in accounts.iter().enumerate() {
            let of_owner = taken.iter().filter(|taken| taken.0 == owner);
            prop_assert_eq!(account.bytes(), of_owner.map(|taken| taken.2.bytes()).sum::<u64>());
            prop_assert_eq!(account.bytes(), owners[owner].bytes());
        }
        for (owner, page, class, _) in taken {
            owners[owner].give(page, class);
        }
        arena.check();
        prop_assert_eq!(arena.bytes_in_use(), 0);
    }
}

#[test]
fn a_span_is_returned_to_the_system_with_its_last_page_and_reused() {
    let arena = Arc::new(Arena::default());
    let mut pages = Pages::new(Arc::clone(&arena), Arc::default());
    let count = if cfg!(miri) { 12 } else { 10_000 };
    let mut most = 0;
    for _ in 0..3 {
        let taken: Vec<u32> = (0..count).map(|_| pages.take(Class::LARGEST)).collect();
        taken.iter().for_each(|&page| mark(&pages, page, Class::LARGEST, 7));
        arena.check();
        assert!(arena.bytes() < count * 4200 + (256 << 10), "{} bytes for {count} pages", arena.bytes());
        most = arena.bytes().max(most);
        taken.into_iter().for_each(|page| pages.give(page, Class::LARGEST));
        arena.check();
        assert!(arena.bytes() < most / 8 + (256 << 10), "{} bytes for no pages", arena.bytes());
    }
    assert!(most <= count * 4200 + (256 << 10), "numbers or memory are not used again");
}

#[test]
fn threads_never_share_a_page() {
    let arena = Arc::new(Arena::default());
    std::thread::scope(|scope| {
        for thread in 1..=2u64 {
            let mut pages = Pages::new(Arc::clone(&arena), Arc::default());
            scope.spawn(move || {
                for round in 0..if cfg!(miri) { 2 } else { 50 } {
                    let classes =
                        (0..if cfg!(miri) { 20 } else { 500 }).map(|at| Class::doubled((at * 5 + round) % 7));
                    let taken: Vec<_> = classes.map(|class| (pages.take(class), class)).collect();
                    taken.iter().for_each(|&(page, class)| mark(&pages, page, class, thread));
                    for &(page, class) in &taken {
                        assert!(pages.words(page, class.words()).iter().all(|at| at.load(Relaxed) == thread));
                        pages.give(page, class);
                    }
                }
            });
        }
    });
    arena.check();
    assert_eq!(arena.bytes_in_use(), 0);
}

#[test]
#[should_panic(expected = "with which it was not taken")]
fn a_double_free_of_a_page_is_detected() {
    let mut pages = pages();
    let page = [(); 2].map(|()| pages.take(Class::SMALLEST))[0];
    pages.give(page, Class::SMALLEST);
    pages.give(page, Class::SMALLEST);
}
