//! The crate `metrics` receives the counters of all clients.

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::BTreeMap;

use super::*;
use crate::support::*;

/// The sum of each value by its name; for a histogram, the number of its values.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, f64>>>);

impl Sums {
    fn of(&self, name: &str) -> f64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    fn value(&self, key: &Key) -> Arc<Value> {
        Arc::new(Value { sums: self.clone(), name: key.name().to_owned() })
    }
}

struct Value {
    sums: Sums,
    name: String,
}

impl Value {
    fn add(&self, value: f64) {
        *self.sums.0.lock().unwrap().entry(self.name.clone()).or_default() += value;
    }
}

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("several clients would overwrite each other");
    }
}

impl GaugeFn for Value {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        panic!("several clients would overwrite each other");
    }
}

impl HistogramFn for Value {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value} s");
        self.add(1.0);
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.value(key))
    }
}

#[tokio::test]
async fn the_counters_of_several_clients_add_up_and_their_gauges_end_with_them() {
    let sums = Sums::default();
    let _guard = ::metrics::set_default_local_recorder(&sums);
    let server = TestingServer::start().await.unwrap();
    let connect = || async {
        // Pings are frequent, so that the values are recorded soon.
        let config = Config::new(&server.connect_string()).unwrap();
        config.with_session_timeout(ms(1500)).connect().await.unwrap()
    };
    let (a, b): (Client, Client) = (connect().await, connect().await);
    a.create("/a", b"", CreateMode::Persistent).await.unwrap();
    for client in [&a, &b] {
        client.exists("/a").await.unwrap();
        client.get_data("/none").await.unwrap_err();
    }
    let (_, _watcher) = b.get_data_and_watch("/a").await.unwrap();
    eventually("the watch", async || sums.of("docent_watches") == 1.0).await;
    eventually("the requests", async || sums.of("docent_requests_total") >= 6.0).await;
    eventually("the pings", async || sums.of("docent_pings_total") >= 2.0).await;
    assert_eq!(sums.of("docent_error_replies_total"), 2.0);
    assert_eq!(sums.of("docent_sessions_total"), 2.0);
    assert_eq!(sums.of("docent_connected_clients"), 2.0);
    assert_eq!(sums.of("docent_connections_total"), 2.0);
    assert!(sums.of("docent_connection_attempts_total") >= 2.0);
    a.create("/b", &[7; 1000], CreateMode::Persistent).await.unwrap();
    let metrics = [a.metrics(), b.metrics()];
    a.close().await.unwrap();
    b.close().await.unwrap();
    eventually("the ends", async || {
        let replies: u64 = metrics.iter().map(|metrics| metrics.replies).sum();
        let is_complete = sums.of("docent_replies_total") >= replies as f64;
        is_complete && sums.of("docent_watches") == 0.0
    })
    .await;
    assert!(sums.of("docent_sent_bytes_total") > 1000.0);
    assert!(sums.of("docent_received_bytes_total") > 0.0);
    let measured: u64 = metrics.iter().map(|metrics| metrics.latency.count()).sum();
    assert!(measured > 0 && sums.of("docent_request_latency_seconds") >= measured as f64);
    for gauge in [
        "pending_requests",
        "requests_in_flight",
        "pending_bytes",
        "outgoing_bytes",
        "connected_clients",
    ] {
        assert_eq!(sums.of(&format!("docent_{gauge}")), 0.0, "{gauge}");
    }
    // The table of the documentation has all names.
    let table = include_str!("../../src/machine/metrics.rs");
    for name in sums.0.lock().unwrap().keys() {
        assert!(table.contains(&format!("`{name}`")), "{name}");
    }
}
