//! An acquire emits an event at level TRACE for each of its steps, as listed in the documentation of `lock_internals`.

use std::collections::BTreeMap;

use super::*;

/// The number and first words of each step in the documentation.
fn documented() -> BTreeMap<u64, String> {
    let source = include_str!("../../recipes/src/locks/lock_internals.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.filter_map(|row| row.split_once(". "))
        .filter_map(|(number, text)| {
            let words = text.split([',', ':', '|']).next()?;
            Some((number.parse().ok()?, words.trim().to_owned()))
        })
        .collect()
}

#[tokio::test]
async fn every_step_is_traced_in_the_words_of_its_documentation() {
    let (events, _guard) = Traced::start(Level::TRACE, "docent_recipes");
    let server = TestingServer::start().await.unwrap();
    let tap = server.tap().await.unwrap();
    let client = Client::connect(&tap.connect_string()).await.unwrap();
    let policy = RetryNTimes::new(5, Duration::from_millis(10));
    let options = LockOptions::default().with_retry_policy(policy);
    let mutex = InterProcessMutex::with_options(&client, "/steps", options).unwrap();
    let mut all = BTreeMap::new();
    let mut assert_steps = |expected: &[u64]| {
        let mut steps = Vec::<u64>::new();
        for mut event in events.take() {
            let Some(step) = event.0.remove("step") else { continue };
            assert!(event.0.contains_key("path"), "{step}");
            steps.push(step.parse().unwrap());
            all.insert(step.parse().unwrap(), event.0.remove("message").unwrap());
        }
        assert_eq!(steps, expected);
    };

    // Parents are missing.
    mutex.acquire().await.unwrap().release().await.unwrap();
    assert_steps(&[1, 2, 5, 6, 10]);
    // A reply is lost.
    tap.inject(Fault::drop_reply(OpCode::Create2));
    let holder = mutex.acquire().await.unwrap();
    assert_steps(&[1, 3, 5, 6]);
    // A timeout behind the holder: the queue is listed once more after the deadline.
    let none = mutex.acquire_timeout(Duration::from_secs(2)).await.unwrap();
    assert!(none.is_none());
    assert_steps(&[1, 5, 6, 7, 8, 5, 6, 7, 9]);
    // A revocable waiter that is woken.
    mutex.make_revocable(|| {});
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    // The watches of its own node and of the holder's are set.
    until("the waiter", async || events.has("step", "7") && client.metrics().pending == 0).await;
    holder.release().await.unwrap();
    let guard = within_deadline("the waiter", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_steps(&[1, 4, 5, 6, 7, 10, 8, 5, 6, 10]);

    assert_eq!(all, documented());
}
