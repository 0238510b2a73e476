//! A strict mutex whose holder is connected to a follower that is lost: its hold ends before the next one begins.

use docent::StrictMutex;

use super::*;

const SYNC_LIMIT: u32 = 6;
const SESSION: Duration = Duration::from_secs(4);

on_both_servers! {
    #[tokio::test(flavor = "multi_thread")]
    crate::Ensemble::embedded, crate::Ensemble::real;
    a_strict_hold_on_a_lost_follower_ends_before_the_next(3, super::SYNC_LIMIT)
}

/// Both clients run on one machine, so their clocks can be compared.
// Case (Strict mutexes): a follower that is cut off with the holder.
async fn a_strict_hold_on_a_lost_follower_ends_before_the_next(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let follower = (leader + 1) % 3;
    let client = async |member: usize| -> Client {
        let config = Config::new(&ensemble.connect_to(member)).unwrap();
        within_deadline("a session", config.with_session_timeout(SESSION).connect()).await.unwrap()
    };
    let (a, b) = (client(follower).await, client(leader).await);
    let holder = StrictMutex::new(&a, "/strict").unwrap();
    let guard = within_deadline("a hold", holder.acquire()).await.unwrap();
    let rival = StrictMutex::new(&b, "/strict").unwrap();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move {
            let guard = rival.acquire().await.unwrap();
            (b.now(), guard)
        }
    });
    // An isolated member still answers pings for some time, which prove nothing. A frozen one answers nothing.
    let frozen = match &ensemble {
        Ensemble::Embedded(cluster) => {
            cluster.isolate(follower);
            None
        }
        Ensemble::Real(ensemble) => Some(Frozen::new(ensemble.process_id(follower).unwrap())),
    };
    let mut proven_until = guard.proven_until();
    let lost = async {
        while guard.is_held() {
            proven_until = proven_until.max(guard.proven_until());
            tokio::time::sleep(TICK / 50).await;
        }
    };
    within_deadline("the end of the hold", lost).await;
    let (began, next) = within_deadline("the next hold", waiting).await.unwrap();
    assert!(began > proven_until, "{began:?} {proven_until:?}");
    let gap = began.duration_since(proven_until);
    eprintln!("the next hold began {gap:?} after the proven end of the lost one");
    let token = next.fencing_token().await.unwrap();
    assert!(token > guard.fencing_token().await.unwrap());
    within_deadline("a release", next.release()).await.unwrap();
    drop((guard, frozen));
}
