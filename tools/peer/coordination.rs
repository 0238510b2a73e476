//! Barriers and atomic numbers, by handles `KIND:PATH[#SUFFIX]`.

use std::{sync::Arc, time::Duration};

use docent::{
    AtomicOptions, DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicValue,
    DistributedBarrier, DistributedDoubleBarrier,
    atomic::{AtomicStats, AtomicValue, PromotedToLock},
    retry::RetryNTimes,
};

use super::{
    Answer, Failure, Object, Peer, done, millis,
    node_operations::{bytes, bytes_token},
    parts,
};

/// The object behind a handle, created by its first verb.
pub(super) struct HandleObject {
    peer: Arc<Peer>,
    handle: String,
    object: Option<Kind>,
}

enum Kind {
    Barrier(DistributedBarrier),
    Member(DistributedDoubleBarrier),
    Long(DistributedAtomicLong),
    Int(DistributedAtomicInteger),
    Value(DistributedAtomicValue),
}

/// Runs a verb of an atomic number; both types have the same verbs.
macro_rules! count {
    ($number:expr, $type:ty, $verb:expr, $args:expr) => {{
        let parse = |text: &str| text.parse::<$type>().map_err(no_number);
        match ($verb, $args) {
            ("aget", []) => result($number.get().await?, 0),
            ("ainc", []) => result($number.increment().await?, 0),
            ("adec", []) => result($number.decrement().await?, 0),
            ("aadd", [delta]) => result($number.add(parse(delta)?).await?, 0),
            ("asub", [delta]) => result($number.subtract(parse(delta)?).await?, 0),
            ("atryset", [to]) => result($number.try_set(parse(to)?).await?, 0),
            ("acas", [from, to]) => {
                result($number.compare_and_set(parse(from)?, parse(to)?).await?, 0)
            }
            ("aforce", [to]) => {
                $number.force_set(parse(to)?).await?;
                done()
            }
            ("ainit", [to]) => Ok(Some($number.initialize(parse(to)?).await?.to_string())),
            _ => Err(Failure::unknown($verb, $args)),
        }
    }};
}

impl HandleObject {
    pub(super) const fn new(peer: Arc<Peer>, handle: String) -> Self {
        Self { peer, handle, object: None }
    }

    fn make(&self, options: AtomicOptions) -> Result<Kind, Failure> {
        let (client, (kind, path)) = (&self.peer.client, parts(&self.handle));
        let lock_options = self.peer.data_options.clone();
        let options = options.with_lock_options(lock_options.clone());
        Ok(match kind {
            "barrier" => {
                Kind::Barrier(DistributedBarrier::with_options(client, path, lock_options)?)
            }
            "along" => Kind::Long(DistributedAtomicLong::with_options(client, path, options)?),
            "aint" => Kind::Int(DistributedAtomicInteger::with_options(client, path, options)?),
            "avalue" => Kind::Value(DistributedAtomicValue::with_options(client, path, options)?),
            _ => Kind::Member(self.member()?),
        })
    }

    /// Creates members until the ID of one fits the suffix: it begins with 0 to 7 (`#lo`), with 8
    /// to f (`#hi`), or with the digit of the suffix.
    fn member(&self) -> Result<DistributedDoubleBarrier, Failure> {
        let (kind, path) = parts(&self.handle);
        let quantity = kind.trim_start_matches("dbarrier=").parse();
        let quantity = quantity.map_err(|_| Failure::command(format!("{kind} has no number")))?;
        loop {
            let options = self.peer.data_options.clone();
            let client = &self.peer.client;
            let member = DistributedDoubleBarrier::with_options(client, path, quantity, options)?;
            let is_low = member.member_id().starts_with(|digit: char| ('0'..='7').contains(&digit));
            let fits = match self.handle.rsplit_once('#') {
                Some((_, "lo")) => is_low,
                Some((_, "hi")) => !is_low,
                Some((_, digit)) if digit.len() == 1 => member.member_id().starts_with(digit),
                _ => true,
            };
            if fits {
                return Ok(member);
            }
        }
    }
}

impl Object for HandleObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        if let ("aopen", [retries, sleep, lock @ ..]) = (verb, args) {
            let retries = retries.parse();
            let retries = retries.map_err(|_| Failure::command("RETRIES is no number"))?;
            let policy = RetryNTimes::new(retries, millis(sleep)?);
            let mut options = AtomicOptions::default().with_retry_policy(policy);
            if let [path, rest @ ..] = lock {
                let mut promotion = PromotedToLock::new(path).with_retry_policy(policy);
                if let [limit] = rest {
                    promotion = promotion.with_timeout(millis(limit)?);
                }
                options = options.with_promotion(promotion);
            }
            self.object = Some(self.make(options)?);
            return done();
        }
        let is_outside = matches!(&self.object, Some(Kind::Member(member)) if !member.is_inside());
        if self.object.is_none() || (verb == "denter" && is_outside) {
            let three = RetryNTimes::new(3, Duration::ZERO);
            self.object = Some(self.make(AtomicOptions::default().with_retry_policy(three))?);
        }
        match self.object.as_mut() {
            Some(Kind::Barrier(barrier)) => wait(barrier, verb, args).await,
            Some(Kind::Member(member)) => meet(member, verb, args).await,
            Some(Kind::Long(number)) => count!(number, i64, verb, args),
            Some(Kind::Int(number)) => count!(number, i32, verb, args),
            Some(Kind::Value(value)) => match (verb, args) {
                ("aget", []) => bytes_result(value.get().await?),
                ("atryset", [to]) => bytes_result(value.try_set(bytes(to)?).await?),
                ("acas", [from, to]) => {
                    bytes_result(value.compare_and_set(bytes(from)?, bytes(to)?).await?)
                }
                ("aforce", [to]) => {
                    value.force_set(bytes(to)?).await?;
                    done()
                }
                ("ainit", [to]) => Ok(Some(value.initialize(bytes(to)?).await?.to_string())),
                _ => Err(Failure::unknown(verb, args)),
            },
            None => Err(Failure::unknown(verb, args)),
        }
    }
}

async fn wait(barrier: &DistributedBarrier, verb: &str, args: &[&str]) -> Answer {
    match (verb, args) {
        ("bset", []) => barrier.set_barrier().await?,
        ("bremove", []) => barrier.remove_barrier().await?,
        ("bwait", []) => barrier.wait_on_barrier().await?,
        ("bwait", [limit]) => {
            return passed(barrier.wait_on_barrier_timeout(millis(limit)?).await?);
        }
        _ => return Err(Failure::unknown(verb, args)),
    }
    done()
}

async fn meet(member: &mut DistributedDoubleBarrier, verb: &str, args: &[&str]) -> Answer {
    match (verb, args) {
        ("denter", []) => member.enter().await?,
        ("dleave", []) => member.leave().await?,
        ("denter", [limit]) => return passed(member.enter_timeout(millis(limit)?).await?),
        ("dleave", [limit]) => return passed(member.leave_timeout(millis(limit)?).await?),
        _ => return Err(Failure::unknown(verb, args)),
    }
    done()
}

fn no_number(error: std::num::ParseIntError) -> Failure {
    Failure::command(error.to_string())
}

fn passed(is_true: bool) -> Answer {
    Ok(is_true.then(String::new))
}

/// `SUCCEEDED PRE POST OPTIMISTIC_TRIES PROMOTED_TRIES`.
fn result<N: ToString>(value: AtomicValue<N>, failed: N) -> Answer {
    let succeeded = value.succeeded();
    let post = value.post_value.unwrap_or(failed).to_string();
    fields(succeeded, &value.pre_value.to_string(), &post, value.stats)
}

fn bytes_result(value: AtomicValue<Option<bytes::Bytes>>) -> Answer {
    let succeeded = value.succeeded();
    let post = bytes_token(value.post_value.flatten().as_deref());
    fields(succeeded, &bytes_token(value.pre_value.as_deref()), &post, value.stats)
}

fn fields(succeeded: bool, pre: &str, post: &str, stats: AtomicStats) -> Answer {
    let (optimistic, promoted) = (stats.optimistic_tries, stats.promoted_lock_tries);
    Ok(Some(format!("{succeeded} {pre} {post} {optimistic} {promoted}")))
}
