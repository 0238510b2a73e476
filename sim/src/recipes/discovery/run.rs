//! Registrations of instances.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
};

use docent::ErrorKind;
use docent_discovery::{
    DiscoveryOptions, Error, InstanceSerializer, JsonInstanceSerializer, SerializerError,
    ServiceDiscovery, ServiceInstance, ServiceType,
};
use docent_session::planted;

use super::{
    check::{Registered, SERVICES, Serving, Shown},
    steps::{ServeEnd, ServeKind, ServeStep},
};
use crate::recipes::{common::Retry, worker::Worker};

/// The longest wait for a change, in milliseconds.
pub(super) const WRITTEN_WITHIN_MS: u64 = 10_000;

/// The instances that a process has registered, by their paths: two discoveries of a client must not register the same
/// one.
#[derive(Default)]
struct Taken(BTreeSet<String>);

pub(super) fn discovery(worker: &Worker, retry: Retry) -> Option<ServiceDiscovery> {
    let options = DiscoveryOptions::default()
        .with_lock_options(retry.lock_options())
        .with_serializer(Serializer::default());
    let made = ServiceDiscovery::with_options(&worker.client, SERVICES, options);
    worker.accepted(SERVICES, made)
}

pub(super) fn service_path(service: &str) -> String {
    format!("{SERVICES}/{service}")
}

/// Registers an instance, changes it, and ends the registration.
pub(super) async fn serve(worker: &Worker, step: &ServeStep) {
    let registration = format!("server-{}", worker.world.next_number());
    let service = format!("s{}", step.service);
    let id = step.instance.map_or_else(|| registration.clone(), |number| format!("i{number}"));
    let path = format!("{}/{id}", service_path(&service));
    if !worker.shared.with(|taken: &mut Taken| taken.0.insert(path.clone())) {
        return worker.say(format!("{path} is registered already"));
    }
    let Some(discovery) = discovery(worker, step.retry) else { return };
    let service_type = match step.kind {
        ServeKind::Dynamic => ServiceType::Dynamic,
        ServeKind::Sequential => ServiceType::DynamicSequential,
        ServeKind::Static => ServiceType::Static,
        ServeKind::Permanent => ServiceType::Permanent,
    };
    let instance = |shown: &Shown| {
        ServiceInstance::new(&service, &id)
            .with_address(shown.address.clone())
            .with_enabled(shown.is_enabled)
            .with_service_type(service_type)
            .with_registration_time_utc(0)
    };
    let used = service_path(&service);
    let known = if step.kind == ServeKind::Sequential { &used } else { &path };
    let new = Registered::new(known.clone(), &id);
    let names = (&*registration, &*used);
    let serving = Serving::begin(&worker.world, worker.of(), names, (true, true), new);
    worker.say(format!("registers {path} as {registration}: {:?}", step.kind));
    let pause = step.for_ms / (u64::from(step.changes) + 1);
    let (number, shown) = serving.next(worker.world.now(), false);
    let written = discovery.register(instance(&shown));
    let written = worker.within(pause, written).await;
    acknowledge(worker, &serving, &registration, number, written);
    for change in 0..step.changes {
        worker.sleep(pause).await;
        let toggles = change % 3 == 2;
        let (number, shown) = serving.next(worker.world.now(), toggles);
        let written: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> = if toggles {
            Box::pin(discovery.set_enabled(&service, &id, shown.is_enabled))
        } else {
            Box::pin(discovery.update(instance(&shown)))
        };
        if step.waits {
            let written = worker.within(WRITTEN_WITHIN_MS, written).await;
            acknowledge(worker, &serving, &registration, number, written);
        }
    }
    worker.sleep(pause).await;
    let leaves = step.kind == ServeKind::Permanent;
    let session = worker.session_id();
    let ended = match step.end {
        ServeEnd::Keep => {
            worker.say(format!("{registration} stays"));
            return worker.keep((discovery, serving));
        }
        ServeEnd::Drop => {
            serving.close(leaves);
            drop(discovery);
            return worker.say(format!("{registration} is dropped"));
        }
        ServeEnd::CancelledUnregister => {
            serving.close(false);
            drop(discovery.unregister(&service, &id));
            return worker.say(format!("{registration} begins to end"));
        }
        ServeEnd::Unregister => {
            serving.close(false);
            discovery.unregister(&service, &id).await
        }
        ServeEnd::Close => {
            serving.close(leaves);
            discovery.close().await
        }
    };
    worker.say(format!("{registration} is over: {:?}", ended.as_ref().err().map(Error::kind)));
    // After any other end, the background may still delete the node of this id.
    if ended.is_ok() && worker.client.ended().is_none() && worker.session_id() == session {
        serving.is_closed(session);
        worker.shared.with(|taken: &mut Taken| taken.0.remove(&path));
    }
}

fn acknowledge(
    worker: &Worker,
    serving: &Serving,
    registration: &str,
    number: usize,
    written: Option<Result<(), Error>>,
) {
    match written {
        Some(Ok(())) => {
            worker.say(format!("change {number} of {registration} is written"));
            serving.acknowledged(&worker.world, number);
        }
        Some(Err(error)) => {
            worker.fails(format_args!("change {number} of {registration}"), &error);
            if matches!(error.kind(), ErrorKind::BadArguments | ErrorKind::InvalidPath) {
                worker.violation(&format!("change {number} of {registration}: {error}"));
            }
        }
        None => worker.say(format!("change {number} of {registration} is not written yet")),
    }
}

/// The default serializer, which may have a planted fault.
#[derive(Default)]
struct Serializer {
    json: JsonInstanceSerializer,
    /// The address that was read last.
    last: Mutex<String>,
}

impl InstanceSerializer<serde_json::Value> for Serializer {
    fn serialize(&self, instance: &ServiceInstance) -> Result<Vec<u8>, SerializerError> {
        self.json.serialize(instance)
    }

    fn deserialize(&self, bytes: &[u8]) -> Result<ServiceInstance, SerializerError> {
        let instance: ServiceInstance = self.json.deserialize(bytes)?;
        let address = instance.address().unwrap_or_default().to_owned();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, address);
        drop(last);
        if planted::one_in("instance-misread", 16) {
            return Ok(instance.with_address(before));
        }
        Ok(instance)
    }
}
