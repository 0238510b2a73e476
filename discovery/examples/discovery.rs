//! Service discovery: printers register, and a client sends its jobs to those that work.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::Client;
use docent_discovery::{ServiceCacheEvent, ServiceDiscovery, ServiceInstance, ServiceProvider};
use docent_testing::TestingServer;

const SERVICES: &str = "/examples/services";

/// The printers of the next four jobs.
fn jobs(printers: &ServiceProvider) -> String {
    let jobs = (0..4).filter_map(|_| printers.instance());
    let jobs = jobs.map(|printer| printer.id().to_owned());
    jobs.collect::<Vec<_>>().join(", ")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let office = Client::connect(&connect_string).await?;
    let printers = ServiceDiscovery::new(&office, SERVICES)?.service_provider("printer")?;
    let mut events = printers.cache().events();
    printers.initialized().await?;

    // Each in its own process, as a rule.
    let basement = Client::connect(&connect_string).await?;
    let discovery = ServiceDiscovery::new(&basement, SERVICES)?;
    for (id, address) in [("laser", "10.0.0.7"), ("matrix", "10.0.0.8")] {
        let printer = ServiceInstance::new("printer", id).with_address(address).with_port(631);
        discovery.register(printer).await?;
    }
    let mut seen = 0;
    while seen < 2 {
        if let Some(ServiceCacheEvent::Added { instance }) = events.next().await {
            println!("{} is there, at {:?}", instance.id(), instance.address());
            seen += 1;
        }
    }
    println!("jobs go to {}", jobs(&printers));

    if let Some(failing) = printers.instances().pop() {
        printers.note_error(&failing);
        printers.note_error(&failing);
        println!("{} has failed twice: jobs go to {}", failing.id(), jobs(&printers));
    }
    // Also when the process dies, once its session has expired.
    discovery.unregister("printer", "laser").await?;
    while !matches!(events.next().await, Some(ServiceCacheEvent::Removed { .. })) {}
    println!("laser has left; usable: {}", printers.instances().len());
    discovery.close().await?;
    basement.close().await?;
    Ok(office.close().await?)
}
