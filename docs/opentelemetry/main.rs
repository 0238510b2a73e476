//! Requests to ZooKeeper as spans, and the counters of the client as metrics, for an OpenTelemetry collector.
//!
//! The collector's OTLP/HTTP port is `OTEL_EXPORTER_OTLP_ENDPOINT` (default `http://localhost:4318`), the ZooKeeper is
//! `DOCENT_CONNECT` (default 127.0.0.1:2181).

use std::{env, error::Error};

use docent::{Client, InterProcessMutex, client::Metrics};
use opentelemetry::{metrics::MeterProvider as _, trace::TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tracing::{Instrument as _, Level, info_span};
use tracing_subscriber::{filter::Targets, prelude::*};

/// The metrics, by the names of the feature `metrics`.
const COUNTERS: [(&str, fn(&Metrics) -> u64); 4] = [
    ("docent_requests_total", |metrics| metrics.requests),
    ("docent_error_replies_total", |metrics| metrics.error_replies),
    ("docent_connections_total", |metrics| metrics.connections),
    ("docent_sessions_total", |metrics| metrics.sessions),
];

fn spans(resource: Resource) -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder().with_resource(resource);
    let provider = provider.with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("printer"));
    // Line numbers of docent and names of threads say nothing about a request.
    let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
    // Every request is a span. Without the first line there are none, and they cost nothing.
    let filter = Targets::new()
        .with_target("docent::request", Level::TRACE)
        .with_target("opentelemetry", Level::INFO);
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    Ok(provider)
}

fn metrics(resource: Resource, client: &Client) -> Result<SdkMeterProvider, Box<dyn Error>> {
    let exporter = MetricExporter::builder().with_http().build()?;
    let provider = SdkMeterProvider::builder().with_resource(resource);
    let provider = provider.with_periodic_exporter(exporter).build();
    let meter = provider.meter("docent");
    for (name, read) in COUNTERS {
        // A weak handle: metrics keep no session open.
        let client = client.downgrade();
        let counter = meter.u64_observable_counter(name).with_callback(move |observer| {
            if let Some(client) = client.upgrade() {
                observer.observe(read(&client.metrics()), &[]);
            }
        });
        counter.build();
    }
    Ok(provider)
}

async fn print(client: &Client) -> Result<(), docent::Error> {
    let guard = InterProcessMutex::new(client, "/locks/printer")?.acquire().await?;
    client.get_data("/no-such-page").allow(docent::ErrorKind::NoNode).await?;
    guard.release().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let resource = Resource::builder().with_service_name("printer").build();
    let spans = spans(resource.clone())?;
    let connect = env::var("DOCENT_CONNECT").unwrap_or_else(|_| "127.0.0.1:2181".to_owned());
    let client = Client::connect(&connect).await?;
    let metrics = metrics(resource, &client)?;
    // The requests of the body are children of this span.
    print(&client).instrument(info_span!("print")).await?;
    // The last spans and numbers are sent.
    metrics.shutdown()?;
    client.close().await?;
    Ok(spans.shutdown()?)
}
