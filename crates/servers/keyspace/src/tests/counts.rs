//! Open collections: the process keeps their sizes, and after a crash the elements are counted.

use super::*;

const KEY: &[u8] = b"collection";

/// The expected members and scores of the collection at [`KEY`].
type Model = std::collections::BTreeMap<Vec<u8>, f64>;

fn begin(store: &Store) -> Transaction<'_> {
    let held = store.lock([Store::stripe_of_key(KEY)].into_iter().collect(), Access::Exclusive);
    store.begin(held.expect("locks"), store.clock().now_ms())
}

/// The collection in the head.
fn head(transaction: &Transaction<'_>) -> Option<(Kind, CollectionId, Count)> {
    let copied = |head: Option<Head<'_>>| match head?.content {
        Content::Collection(kind, id, count) => Some((kind, id, count)),
        Content::String(_) | Content::Long(_) => None,
    };
    transaction.head(0, KEY, copied).expect("reads")
}

fn count(transaction: &Transaction<'_>) -> u64 {
    let what = head(transaction).expect("it is there");
    transaction.count_of(0, KEY, what).expect("counts")
}

/// Checks elements, and members by their scores for a sorted set, against the model.
fn assert_is(store: &Store, model: &Model, context: &str) {
    let transaction = begin(store);
    let (kind, id, _) = head(&transaction).expect("it is there");
    assert_eq!(count(&transaction), model.len() as u64, "{context}");
    let whole = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let mut fields = Model::new();
    let visit = |element: Element<'_>, value: &[u8]| {
        if let Element::Field(name) = element {
            let score = value.try_into().map_or(0.0, f64::from_le_bytes);
            fields.insert(name.to_vec(), score);
        }
        std::ops::ControlFlow::Continue(())
    };
    let order = Order::Ascending;
    transaction.scan_elements(id, Section::Fields, whole, order, visit).expect("scans");
    assert_eq!(&fields, model, "{context}");
    if kind == Kind::SortedSet {
        let mut scored = Model::new();
        let mut last = f64::NEG_INFINITY;
        let visit = |element: Element<'_>, _: &[u8]| {
            if let Element::Scored(score, name) = element {
                assert!(
                    score >= last && scored.insert(name.to_vec(), score).is_none(),
                    "{context}"
                );
                last = score;
            }
            std::ops::ControlFlow::Continue(())
        };
        transaction.scan_elements(id, Section::Scored, whole, order, visit).expect("scans");
        assert_eq!(&scored, model, "{context}");
    }
}

/// Creates a collection of that kind with one member.
fn create(store: &Store, kind: Kind) -> Model {
    let id = store.new_id().expect("an id");
    write(store, &[KEY], |transaction| {
        if kind == Kind::SortedSet {
            transaction.put_element(id, Element::Scored(0.0, b"first"), &[]);
        }
        transaction.put_element(id, Element::Field(b"first"), &0f64.to_le_bytes());
        let content = Content::Collection(kind, id, Count::Known(1));
        let head = Head { expires_at: None, memcached: None, content };
        transaction.put_head(0, KEY, &head).expect("puts");
    });
    Model::from([(b"first".to_vec(), 0.0)])
}

/// Changes one element as a command does: to a score, or `None` to remove it.
fn change(store: &Store, member: &[u8], score: Option<f64>) -> Result<()> {
    let mut transaction = begin(store);
    let (kind, id, said) = head(&transaction).expect("it is there");
    let count = count(&transaction);
    let (at, what) = ((0, KEY), (id, count));
    let is_open = said == Count::Open;
    assert!(transaction.open_collection(at, (kind, id, count), is_open, None)?);
    let former = transaction.element(id, Element::Field(member), |value| {
        value.map(|value| f64::from_le_bytes(value.try_into().expect("a score")))
    })?;
    match (kind, score) {
        // A command does not write the score that exists already.
        (Kind::SortedSet, Some(score)) if former == Some(score) => {}
        (Kind::SortedSet, Some(score)) => {
            transaction.put_scored_at_once(at, what, member, former, score)?;
        }
        (Kind::SortedSet, None) => {
            if let Some(former) = former {
                transaction.remove_scored_at_once(at, what, member, former)?;
            }
        }
        (_, Some(score)) => {
            let (element, value) = (Element::Field(member), score.to_le_bytes());
            let is_new = transaction.put_element_at_once(at, what, element, &value, false)?;
            assert_eq!(is_new, former.is_none());
        }
        (_, None) => {
            let gone = transaction.remove_element_at_once(at, what, Element::Field(member))?;
            assert_eq!(gone, former.is_some());
        }
    }
    transaction.commit()
}

fn random_change(random: &mut fastrand::Rng) -> (Vec<u8>, Option<f64>) {
    let member = vec![b'm', random.u8(..12)];
    (member, (random.u8(..3) > 0).then(|| f64::from(random.u8(1..6))))
}

fn change_model(model: &mut Model, (member, score): &(Vec<u8>, Option<f64>)) {
    match score {
        Some(score) => model.insert(member.clone(), *score),
        None => model.remove(member),
    };
}

/// From each write on all writes fail, as in a crash; then the store is opened again and counts. A
/// failed change in a running process is undone.
#[test]
fn an_open_collection_has_the_elements_that_it_says_after_a_crash_and_after_a_refusal() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in [Kind::Set, Kind::SortedSet] {
        let with_log = (0..24).step_by(11).map(|made| (made, true));
        for (made, has_log) in (0..24).map(|made| (made, false)).chain(with_log) {
            let path = folder.path().join(format!("{kind:?} {made} {has_log}.pool"));
            let options = options_at(&path, has_log);
            let store = Store::open(Some(&path), &options).expect("a store");
            let mut model = create(&store, kind);
            let mut random = fastrand::Rng::with_seed(made);
            store.refusals.set(made, u64::MAX);
            let mut cut = None;
            for _ in 0..30 {
                let one = random_change(&mut random);
                if change(&store, &one.0, one.1).is_err() {
                    cut = Some(one);
                    break;
                }
                change_model(&mut model, &one);
            }
            // As in a crash: nothing is closed, and nothing can be written.
            store.close().expect("closes");

            let store = Store::open(Some(&path), &options).expect("opens again");
            let context = format!("{kind:?}, log {has_log}, {made} writes, {cut:?}");
            assert_is(&store, &model, &context);
            for _ in 0..10 {
                let one = random_change(&mut random);
                change(&store, &one.0, one.1).expect("changes");
                change_model(&mut model, &one);
            }
            assert_is(&store, &model, &context);
        }
        let store = volatile();
        let mut model = create(&store, kind);
        let mut random = fastrand::Rng::with_seed(77);
        for step in 0..1000 {
            let one = random_change(&mut random);
            store.refusals.set(random.u64(..4), random.u64(..3));
            if change(&store, &one.0, one.1).is_ok() {
                change_model(&mut model, &one);
            }
            store.refusals.set(0, 0);
            assert_is(&store, &model, &format!("{kind:?}, step {step}: {one:?}"));
        }
    }
}

#[test]
fn closing_writes_the_number_into_the_head_and_so_does_every_intent_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pool");
    let store = Store::open(Some(&path), &options()).expect("a store");
    create(&store, Kind::Set);
    let said = |store: &Store| head(&begin(store)).expect("it is there").2;
    assert_eq!(said(&store), Count::Known(1));
    for member in 0u8..9 {
        change(&store, &[member], Some(0.0)).expect("changes");
    }
    assert_eq!(said(&store), Count::Open);
    store.close().expect("closes");
    let store = Store::open(Some(&path), &options()).expect("opens again");
    assert_eq!(said(&store), Count::Known(10));
    change(&store, b"more", Some(0.0)).expect("changes");
    assert_eq!(said(&store), Count::Open);
    // Another expiry, another key, and back.
    write(&store, &[KEY], |transaction| {
        transaction.change_expiry(0, KEY, None).expect("changes");
    });
    assert_eq!(said(&store), Count::Known(11));
    change(&store, b"and more", Some(0.0)).expect("changes");
    write(&store, &[KEY, b"other"], |transaction| {
        transaction.copy_head((0, KEY), (0, b"other")).expect("copies");
        transaction.move_head((0, KEY), (1, KEY)).expect("moves");
        transaction.move_head((1, KEY), (0, KEY)).expect("moves");
    });
    assert_eq!(said(&store), Count::Known(12));
    assert_eq!(fields(&store, b"other"), Some(12));
    assert!(store.counts.is_empty());
    // A removed collection has no entry.
    change(&store, b"once more", Some(0.0)).expect("changes");
    assert!(!store.counts.is_empty());
    write(&store, &[KEY], |transaction| transaction.remove_head(0, KEY).expect("removes"));
    assert!(store.counts.is_empty());
}
