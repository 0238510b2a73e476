//! A history that shows the wire is that of the same run: showing it changes nothing.

use std::collections::BTreeMap;

use docent_sim::{
    recipes::draw,
    run::{self, Watch},
    world::history::{Record, What},
};

fn is_of_wire(record: &Record) -> bool {
    matches!(record.what, What::Wire(_) | What::Belief { .. } | What::Applied { .. })
        || matches!(record.what, What::HeldUntil { .. })
}

#[test]
fn what_arrives_was_sent_and_showing_it_changes_nothing() {
    let (mut arrived_bytes, mut beliefs) = (0, 0);
    for seed in 1..=20 {
        let plan = draw::plan(seed);
        let shown = run::run_watched(&plan, &Watch::with_wire()).history;
        let rest = shown.records.iter().filter(|record| !is_of_wire(record));
        assert!(rest.eq(&run::run(&plan).history.records), "seed {seed}");
        let (mut sent, mut arrived) = (BTreeMap::new(), BTreeMap::new());
        let mut deliveries = BTreeMap::new();
        for record in &shown.records {
            beliefs += usize::from(matches!(record.what, What::Belief { .. }));
            let What::Wire(wire) = &record.what else { continue };
            let key = (wire.connection, wire.to_server);
            let bytes = if wire.delivery.is_some() { &mut arrived } else { &mut sent };
            bytes.entry(key).or_insert_with(Vec::new).extend_from_slice(&wire.bytes);
            if let Some(delivery) = wire.delivery {
                let before = deliveries.insert((wire.pid, wire.to_server), delivery);
                assert!(before < Some(delivery), "seed {seed}: {before:?}, {delivery}");
            }
        }
        for (key, bytes) in arrived {
            arrived_bytes += bytes.len();
            assert!(sent[&key].starts_with(&bytes), "seed {seed}: {key:?}");
        }
    }
    assert!(arrived_bytes > 100_000 && beliefs > 20, "{arrived_bytes} bytes, {beliefs} beliefs");
}
