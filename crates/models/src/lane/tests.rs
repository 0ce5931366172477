//! Lanes against a provider in memory, in time that passes by itself: what is counted is exact, and a minute costs
//! nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> ProviderSettings {
    ProviderSettings { retry_backoff: SECOND / 2, ..ProviderSettings::new(Kind::OpenAi) }
}

fn lane(settings: &ProviderSettings) -> Arc<Lane> {
    Arc::new(Lane::new(settings, "https://example.com/v1"))
}

fn lane_of(max_concurrent_calls: u32) -> Arc<Lane> {
    lane(&ProviderSettings { max_concurrent_calls, ..settings() })
}

fn asker(root: &str) -> Asker {
    Asker { root: root.into(), agent: root.into(), conversation: root.into(), ..Asker::default() }
}

/// An asker, and what it was told of its waiting.
fn listening(root: &str) -> (Asker, Arc<Mutex<Vec<Waiting>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let waiting = move |waiting| heard.lock().unwrap().push(waiting);
    (Asker { waiting: Some(Arc::new(waiting)), ..asker(root) }, told)
}

async fn pass(lane: &Arc<Lane>, root: &str) -> Result<Permit, ProviderError> {
    lane.place(&asker(root), "m", 0).pass().await
}

/// Lets everything happen that is about to, without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn limited(retry_after: Option<Duration>) -> Failure {
    let error = ProviderError::RateLimited { message: "429: slow".to_owned(), retry_after };
    Failure { retryable: true, is_overload: true, retry_after, ..error.into() }
}

fn down() -> Failure {
    let error = ProviderError::Unavailable("500: down".to_owned());
    Failure { retryable: true, counts_for_breaker: true, ..error.into() }
}

fn answer(permit: &mut Permit) {
    permit.told(StatusCode::OK, &HeaderMap::new());
    permit.heard();
}

/// A provider in memory.
#[derive(Default)]
struct Service {
    /// Takes this many at a time.
    at_once: usize,
    /// Refuses everything before this.
    closed_until: Option<Instant>,
    retry_after: Option<Duration>,
    takes: Duration,
    under_way: AtomicUsize,
    asked: AtomicUsize,
    refused: AtomicUsize,
    most: AtomicUsize,
}

impl Service {
    fn count(&self) -> (usize, usize) {
        (self.asked.load(Ordering::SeqCst), self.refused.load(Ordering::SeqCst))
    }

    /// As `Http::post` sends a call, without HTTP.
    async fn call(
        &self,
        lane: &Arc<Lane>,
        asker: &Asker,
        retries: u32,
    ) -> Result<(), ProviderError> {
        let mut place = lane.place(asker, "m", 0);
        let mut failures = 0;
        loop {
            let mut permit = place.pass().await?;
            self.asked.fetch_add(1, Ordering::SeqCst);
            let others = self.under_way.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(others + 1, Ordering::SeqCst);
            let closed = self.closed_until.is_some_and(|until| Instant::now() < until);
            sleep(SECOND / 100).await;
            if others >= self.at_once || closed {
                self.under_way.fetch_sub(1, Ordering::SeqCst);
                self.refused.fetch_add(1, Ordering::SeqCst);
                let failure = limited(self.retry_after);
                permit.failed(&failure);
                failures += 1;
                if failures > retries {
                    return Err(failure.error);
                }
                continue;
            }
            answer(&mut permit);
            sleep(self.takes).await;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            permit.finished();
            return Ok(());
        }
    }
}

/// Each of so many agents makes so many calls, one after the other. How long each took.
async fn run(
    lane: &Arc<Lane>,
    service: &Arc<Service>,
    agents: usize,
    calls: usize,
) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    for agent in 0..agents {
        let (lane, service) = (lane.clone(), service.clone());
        tasks.spawn(async move {
            let (asker, start) = (asker(&format!("agent-{agent}")), Instant::now());
            for _ in 0..calls {
                service.call(&lane, &asker, 3).await.unwrap();
            }
            start.elapsed()
        });
    }
    tasks.join_all().await
}

#[tokio::test(start_paused = true)]
async fn sixteen_that_are_refused_together_send_one_probe_and_then_all_go_through() {
    let service = Arc::new(Service {
        at_once: 1000,
        closed_until: Some(Instant::now() + SECOND / 2),
        retry_after: Some(SECOND),
        takes: SECOND / 10,
        ..Service::default()
    });
    let lane = lane_of(16);
    let running = tokio::spawn({
        let (lane, service) = (lane.clone(), service.clone());
        async move { run(&lane, &service, 16, 1).await }
    });
    sleep(SECOND + SECOND / 200).await;
    assert_eq!(service.count(), (16, 16), "nobody is sent while the lane is stopped");
    sleep(SECOND / 100).await;
    assert_eq!(service.count(), (17, 16), "then one");
    assert_eq!(running.await.unwrap().len(), 16);
    assert_eq!(service.count(), (32, 16));
}

#[tokio::test(start_paused = true)]
async fn sixty_four_agents_find_out_what_a_provider_takes_and_share_it() {
    const AT_ONCE: usize = 8;
    for (retry_after, takes) in [(Some(SECOND), SECOND), (None, SECOND), (Some(SECOND), 3 * SECOND)]
    {
        let service =
            Arc::new(Service { at_once: AT_ONCE, retry_after, takes, ..Service::default() });
        let (agents, calls) = (64, 5);
        let start = Instant::now();
        let times = run(&lane_of(16), &service, agents, calls).await;
        let (asked, refused) = service.count();
        assert!(refused <= 8, "{refused} refusals");
        assert_eq!(asked - refused, agents * calls, "none failed");
        let ideal = (takes + SECOND / 100).as_secs_f64() * (agents * calls / AT_ONCE) as f64;
        let taken = start.elapsed().as_secs_f64() / ideal;
        assert!(taken <= 1.15, "{taken} of the ideal time");
        let (fastest, slowest) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        let spread = slowest.as_secs_f64() / fastest.as_secs_f64();
        assert!(spread <= 1.3, "{spread} from the fastest to the slowest");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_configured_are_under_way() {
    for most in [1, 2, 16] {
        let service = Arc::new(Service { at_once: 1000, takes: SECOND, ..Service::default() });
        run(&lane_of(most), &service, 40, 2).await;
        assert_eq!(service.most.load(Ordering::SeqCst), most as usize);
        assert_eq!(service.count(), (80, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_given_back_however_a_call_ends() {
    let lane = lane_of(1);
    let first = pass(&lane, "a").await.unwrap();
    let second = tokio::spawn({
        let lane = lane.clone();
        async move { pass(&lane, "b").await.map(drop) }
    });
    settle().await;
    assert!(!second.is_finished());
    drop(first);
    second.await.unwrap().unwrap();

    // One that leaves while it waits, or just as it is let go, leaves nothing behind.
    for settled in [true, false] {
        let first = pass(&lane, "a").await.unwrap();
        let leaving = tokio::spawn({
            let lane = lane.clone();
            async move { pass(&lane, "b").await.map(drop) }
        });
        settle().await;
        if settled {
            leaving.abort();
            settle().await;
            drop(first);
        } else {
            drop(first);
            leaving.abort();
            settle().await;
        }
        assert_eq!(lane.locked().0.queue.len(), 0);
        drop(pass(&lane, "c").await.unwrap());
        assert_eq!(lane.locked().0.in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_why_and_for_how_long() {
    let lane = lane_of(1);
    let (asker, told) = listening("a");
    let mut place = lane.place(&asker, "m", 0);
    let mut permit = place.pass().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [], "one that need not wait is told nothing");
    permit.failed(&limited(Some(7 * SECOND)));
    drop(permit);
    let mut permit = place.pass().await.unwrap();
    permit.failed(&limited(Some(7 * SECOND)));
    drop(permit);
    let mut permit = place.pass().await.unwrap();
    answer(&mut permit);
    let expected = Waiting { reason: "rate_limit", wait: Some(7 * SECOND) };
    assert_eq!(*told.lock().unwrap(), [expected]);

    // What is told once is not told again, and does not stand in the way of what is news.
    let (asker, told) = listening("a");
    let mut place = lane.place(&asker, "m", 0);
    for (reason, seconds, is_news) in [
        (RETRY, 1, true),
        (RETRY, 2, false),
        (RATE_LIMIT, 60, true),
        (RATE_LIMIT, 7, false),
        (OVERLOADED, 1, true),
        (OVERLOADED, 11, false),
        (OVERLOADED, 12, true),
        (OVERLOADED, 22, false),
        (FULL, 0, true),
    ] {
        let wait = Some(SECOND * seconds).filter(|wait| !wait.is_zero());
        told.lock().unwrap().clear();
        place.tell(reason, wait);
        let expected = is_news.then_some(Waiting { reason, wait });
        assert_eq!(*told.lock().unwrap(), Vec::from_iter(expected));
    }

    let (asker, told) = listening("b");
    let mut place = lane.place(&asker, "m", 0);
    assert!(matches!(place.pass().await, Err(ProviderError::Crowded(_))));
    assert_eq!(*told.lock().unwrap(), [Waiting { reason: "full", wait: None }]);

    let lane = lane_of(1);
    let overloaded = Failure {
        retryable: true,
        is_overload: true,
        retry_after: Some(SECOND),
        ..ProviderError::Unavailable("529".to_owned()).into()
    };
    pass(&lane, "a").await.unwrap().failed(&overloaded);
    let (asker, told) = listening("a");
    lane.place(&asker, "m", 0).pass().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [Waiting { reason: "overloaded", wait: Some(SECOND) }]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_gives_up() {
    let lane = lane(&ProviderSettings {
        max_concurrent_calls: 1,
        queue_timeout: 5 * SECOND,
        ..settings()
    });
    let held = pass(&lane, "a").await.unwrap();
    let start = Instant::now();
    let error = pass(&lane, "b").await.map(drop).unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 5);
    assert_eq!(
        error,
        ProviderError::Crowded("it waited 5 s; 1 calls are under way and 0 wait".to_owned())
    );
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { pass(&lane, "b").await.map(drop) }
    });
    sleep(5 * SECOND - SECOND / 100).await;
    drop(held);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_number_of_those_that_wait_is_bounded() {
    let lane = lane_of(1);
    let _held = pass(&lane, "a").await.unwrap();
    let mut waiting = JoinSet::new();
    for count in 0..WAITING_MAX {
        let lane = lane.clone();
        waiting.spawn(async move { pass(&lane, &count.to_string()).await.map(drop) });
    }
    settle().await;
    assert_eq!(lane.locked().0.queue.len(), WAITING_MAX);
    let start = Instant::now();
    let error = pass(&lane, "b").await.map(drop).unwrap_err();
    assert_eq!(error, ProviderError::Crowded("4096 calls wait already".to_owned()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    waiting.shutdown().await;
    assert_eq!(lane.locked().0.queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_fills_the_lane_makes_room_for_others() {
    let lane = lane_of(1);
    let held = pass(&lane, "greedy").await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..WAITING_MAX {
        let lane = lane.clone();
        waiting.spawn(async move { pass(&lane, "greedy").await.map(drop) });
    }
    settle().await;
    let other = tokio::spawn({
        let lane = lane.clone();
        async move { pass(&lane, "other").await.map(drop) }
    });
    settle().await;
    let turned_away = waiting.join_next().await.unwrap().unwrap();
    let crowded = ProviderError::Crowded("4096 calls wait already".to_owned());
    assert_eq!(turned_away.unwrap_err(), crowded);
    assert_eq!(pass(&lane, "greedy").await.map(drop).unwrap_err(), crowded);
    assert_eq!(lane.locked().0.queue.len(), WAITING_MAX);
    drop(held);
    other.await.unwrap().unwrap();
    waiting.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_tree_never_has_all_of_a_lane() {
    for (room, of_tree) in [(16, 14), (8, 7), (7, 7), (1, 1)] {
        let lane = lane_of(room);
        let (mut held, mut held_by_all) = (Vec::new(), Vec::new());
        for _ in 0..of_tree {
            held.push(pass(&lane, "greedy").await.unwrap());
        }
        let more = tokio::spawn({
            let lane = lane.clone();
            async move { pass(&lane, "greedy").await.unwrap() }
        });
        settle().await;
        assert!(!more.is_finished(), "{room}");
        // The others do not wait behind it.
        let mut others = Vec::new();
        for _ in of_tree..room {
            others.push(pass(&lane, "other").await.unwrap());
        }
        held.pop();
        drop((more.await.unwrap(), held, others));
        assert!(lane.locked().0.of_roots.is_empty());
        // The administrator is no tree.
        for _ in 0..room {
            held_by_all.push(pass(&lane, "").await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trees_share_a_lane_whatever_their_size() {
    let lane = lane_of(1);
    let order = Arc::new(Mutex::new(String::new()));
    let held = pass(&lane, "x").await.unwrap();
    let mut tasks = JoinSet::new();
    for root in ["a", "a", "a", "a", "b", "b", "c"] {
        let (lane, order) = (lane.clone(), order.clone());
        tasks.spawn(async move {
            let _permit = pass(&lane, root).await.unwrap();
            order.lock().unwrap().push_str(root);
            sleep(SECOND).await;
        });
        settle().await;
    }
    drop(held);
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), "abcabaa");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_tried_again_keeps_its_place() {
    let lane = lane_of(1);
    let (first, second) = (asker("first"), asker("second"));
    let mut place = lane.place(&first, "m", 0);
    let mut permit = place.pass().await.unwrap();
    let mut other = lane.place(&second, "m", 0);
    permit.failed(&limited(Some(SECOND)));
    let order = Mutex::new(Vec::new());
    tokio::join!(
        async {
            // The other stands in the queue by now.
            drop(permit);
            let _permit = place.pass().await.unwrap();
            order.lock().unwrap().push("first");
            sleep(SECOND).await;
        },
        async {
            let mut permit = other.pass().await.unwrap();
            answer(&mut permit);
            order.lock().unwrap().push("second");
        }
    );
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_nobody_sleeps_through_is_an_answer_for_all_who_want_that_model() {
    let lane = lane_of(2);
    let mut first = pass(&lane, "a").await.unwrap();
    let _second = pass(&lane, "b").await.unwrap();
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { pass(&lane, "c").await.map(drop) }
    });
    settle().await;
    let start = Instant::now();
    first.failed(&limited(Some(WAIT_MAX + SECOND)));
    assert!(matches!(waiting.await.unwrap(), Err(ProviderError::RateLimited { .. })));
    drop(first);
    let error = pass(&lane, "d").await.map(drop).unwrap_err();
    let wait = Some(WAIT_MAX + SECOND);
    assert_eq!(
        error,
        ProviderError::RateLimited { message: "429: slow".to_owned(), retry_after: wait }
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(_second);
    drop(lane.place(&asker("e"), "another", 0).pass().await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO, "other models are not concerned");

    let lane = lane_of(2);
    pass(&lane, "a").await.unwrap().failed(&limited(Some(WAIT_MAX)));
    let start = Instant::now();
    drop(pass(&lane, "a").await.unwrap());
    assert_eq!(start.elapsed().as_secs(), 60, "a minute is slept through");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_again_and_again_is_left_alone() {
    let lane = lane_of(16);
    for _ in 0..4 {
        pass(&lane, "a").await.unwrap().failed(&down());
    }
    let mut last = pass(&lane, "a").await.unwrap();
    let mut late = pass(&lane, "a").await.unwrap();
    let held: Vec<_> = futures_util::future::join_all((0..14).map(|_| pass(&lane, "h"))).await;
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { pass(&lane, "w").await.map(drop) }
    });
    settle().await;
    last.failed(&down());
    let message = "it failed again and again; the last time: 500: down".to_owned();
    let resting = |seconds| ProviderError::Resting {
        message: message.clone(),
        retry_after: SECOND * seconds,
    };
    assert_eq!(waiting.await.unwrap().unwrap_err(), resting(15), "who waited is told");
    assert_eq!(pass(&lane, "b").await.map(drop).unwrap_err(), resting(15));
    late.failed(&down());
    drop((last, late, held));
    sleep(14 * SECOND).await;
    assert_eq!(pass(&lane, "b").await.map(drop).unwrap_err(), resting(1));
    sleep(SECOND).await;
    let mut probe = pass(&lane, "b").await.unwrap();
    assert!(matches!(pass(&lane, "c").await, Err(ProviderError::Resting { .. })), "one is enough");
    probe.failed(&down());
    drop(probe);
    assert_eq!(pass(&lane, "b").await.map(drop).unwrap_err(), resting(30));
    sleep(30 * SECOND).await;
    let mut probe = pass(&lane, "b").await.unwrap();
    answer(&mut probe);
    drop(pass(&lane, "c").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_a_service_that_is_down_opens_the_breaker() {
    let lane = lane_of(16);
    let rejected = || Failure::from(ProviderError::Rejected("400".to_owned()));
    for _ in 0..20 {
        pass(&lane, "a").await.unwrap().failed(&rejected());
        pass(&lane, "a").await.unwrap().failed(&limited(Some(Duration::ZERO)));
    }
    for _ in 0..20 {
        for _ in 0..4 {
            pass(&lane, "a").await.unwrap().failed(&down());
        }
        pass(&lane, "a").await.unwrap().told(StatusCode::BAD_REQUEST, &HeaderMap::new());
    }
    // Refused for overload all together: that is one failure.
    let lane = lane_of(16);
    let overloaded = Failure { is_overload: true, retry_after: Some(SECOND), ..down() };
    let mut together: Vec<_> =
        futures_util::future::join_all((0..16).map(|n| pass(&lane, ["a", "b"][n % 2]))).await;
    for permit in &mut together {
        permit.as_mut().unwrap().failed(&overloaded);
    }
    drop(together);
    drop(pass(&lane, "a").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_does_not_stop_the_lane() {
    let lane = lane_of(4);
    pass(&lane, "a").await.unwrap().failed(&limited(Some(SECOND)));
    let probe = pass(&lane, "a").await.unwrap();
    drop(probe);
    let start = Instant::now();
    let mut probe = pass(&lane, "a").await.unwrap();
    probe.failed(&down());
    drop(probe);
    let mut probe = pass(&lane, "a").await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    answer(&mut probe);
    drop(pass(&lane, "a").await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn figures_of_the_provider_are_waited_for() {
    let lane = lane_of(4);
    let mut permit = pass(&lane, "a").await.unwrap();
    let headers = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "3s")]
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    permit.told(StatusCode::OK, &headers.into_iter().collect());
    drop(permit);
    let start = Instant::now();
    drop(lane.place(&asker("b"), "another", 0).pass().await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO, "each model has its own");
    let (asker, told) = listening("a");
    drop(lane.place(&asker, "m", 0).pass().await.unwrap());
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(*told.lock().unwrap(), [Waiting { reason: "rate_limit", wait: Some(3 * SECOND) }]);
}

#[tokio::test(start_paused = true)]
async fn configured_rates_are_kept() {
    let lane = lane(&ProviderSettings { requests_per_minute: Some(60), ..settings() });
    let start = Instant::now();
    for _ in 0..60 {
        drop(pass(&lane, "a").await.unwrap());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    for _ in 0..10 {
        drop(pass(&lane, "a").await.unwrap());
    }
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn small_calls_do_not_slip_by_a_large_one_for_ever() {
    let lane = super::tests::lane(&ProviderSettings { tokens_per_minute: Some(600), ..settings() });
    let order = Arc::new(Mutex::new(Vec::new()));
    drop(lane.place(&asker("x"), "m", 600).pass().await.unwrap());
    let mut tasks = JoinSet::new();
    for (root, tokens) in [("large", 500), ("small", 10), ("tiny", 1)] {
        let (lane, order) = (lane.clone(), order.clone());
        tasks.spawn(async move {
            drop(lane.place(&asker(root), "m", tokens).pass().await.unwrap());
            order.lock().unwrap().push(root);
        });
        settle().await;
    }
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), ["large", "small", "tiny"]);
}

/// What other processes say, and what they are told.
#[derive(Default)]
struct Elsewhere {
    until: Mutex<Option<Timestamp>>,
    told: Mutex<Vec<(String, Timestamp)>>,
}

impl Pauses for Elsewhere {
    fn until(&self, _: &str) -> Option<Timestamp> {
        *self.until.lock().unwrap()
    }

    fn pause(&self, lane: &str, until: Timestamp) {
        self.told.lock().unwrap().push((lane.to_owned(), until));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_shared_with_other_processes() {
    let elsewhere = Arc::new(Elsewhere::default());
    let lane = lane(&ProviderSettings { pauses: Some(elsewhere.clone()), ..settings() });
    let before = Timestamp::now();
    pass(&lane, "a").await.unwrap().failed(&limited(Some(9 * SECOND)));
    let told = elsewhere.told.lock().unwrap().clone();
    let [(name, until)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*name, lane.name);
    assert!(*until >= before + 9 * SECOND && *until <= Timestamp::now() + 9 * SECOND);
    drop(pass(&lane, "a").await.unwrap());

    *elsewhere.until.lock().unwrap() = Some(Timestamp::now() + 20 * SECOND);
    let (asker, told) = listening("a");
    let start = Instant::now();
    let mut permit = lane.place(&asker, "m", 0).pass().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 20);
    assert_eq!(told.lock().unwrap()[0].reason, "rate_limit");
    answer(&mut permit);
    drop(permit);
    drop(pass(&lane, "a").await.unwrap());
    assert_eq!(start.elapsed().as_secs(), 20, "it is over");
    assert_eq!(elsewhere.told.lock().unwrap().len(), 1, "what others said is not said again");
}

#[test]
fn a_lanes_name_is_stable_and_tells_no_key() {
    let name = |key: Option<&str>, url: &str| {
        let key = key.map(str::to_owned);
        Lane::new(&ProviderSettings { api_key: key, ..settings() }, url).name
    };
    let first = name(Some("key-of-mine"), "https://a/v1");
    assert_eq!(first, name(Some("key-of-mine"), "https://a/v1"));
    assert_eq!(first.len(), 32);
    for other in [
        name(Some("key-of-another"), "https://a/v1"),
        name(None, "https://a/v1"),
        name(Some("key-of-mine"), "https://b/v1"),
    ] {
        assert_ne!(first, other);
    }
    assert!(!first.contains("key"));
    let kind = ProviderSettings {
        api_key: Some("key-of-mine".to_owned()),
        ..ProviderSettings::new(Kind::OpenRouter)
    };
    assert_ne!(first, Lane::new(&kind, "https://a/v1").name);
}

#[test]
fn the_wait_of_our_own_choosing_grows_to_a_limit_and_is_never_the_same() {
    let lane = lane(&settings());
    for (failures, seconds) in
        [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (60, 30.0), (u32::MAX, 30.0)]
    {
        let waits: Vec<_> = (0..20).map(|_| lane.backoff(failures).as_secs_f64()).collect();
        assert!(waits.iter().all(|wait| (seconds..=2.0 * seconds).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}

/// Those who may ask another model instead.
fn impatient(root: &str, most: Duration) -> Asker {
    Asker { wait_max: Some(most), ..asker(root) }
}

#[tokio::test(start_paused = true)]
async fn who_may_ask_another_waits_no_longer_than_that() {
    const MOST: Duration = Duration::from_secs(20);
    for (pause, waits) in [(MOST, true), (MOST + SECOND / 100, false)] {
        let lane = lane_of(4);
        let mut first = pass(&lane, "first").await.unwrap();
        first.failed(&limited(Some(pause)));
        drop(first);
        let (began, asker) = (Instant::now(), impatient("a", MOST));
        let passed = lane.place(&asker, "m", 0).pass().await;
        match passed {
            // Given back, since others wait for what comes of the first call after a pause.
            Ok(permit) if waits => {
                assert!(began.elapsed() >= pause);
                drop(permit);
            }
            Err(ProviderError::Crowded(why)) if !waits => {
                assert_eq!(why, "it would wait 20 s");
                assert_eq!(began.elapsed(), Duration::ZERO);
            }
            other => panic!("{pause:?}: {:?}", other.map(drop)),
        }
        // Whoever has nobody else to ask waits as before.
        pass(&lane, "b").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_already_need_not_wait_when_it_becomes_too_long() {
    const MOST: Duration = Duration::from_secs(20);
    // With a word of how long, and without one.
    for failure in [limited(Some(MOST + SECOND)), limited(None)] {
        let settings = ProviderSettings {
            max_concurrent_calls: 1,
            retry_backoff: MOST + SECOND,
            ..settings()
        };
        let lane = lane(&settings);
        let mut first = pass(&lane, "first").await.unwrap();
        let mut others = JoinSet::new();
        for asker in [asker("patient"), impatient("impatient", MOST)] {
            let lane = lane.clone();
            others.spawn(async move {
                let passed = lane.place(&asker, "m", 0).pass().await.map(drop);
                (asker.root.to_string(), passed)
            });
        }
        settle().await;
        let began = Instant::now();
        first.failed(&failure);
        drop(first);
        let (who, passed) = others.join_next().await.unwrap().unwrap();
        assert_eq!((&*who, passed), ("impatient", Err(failure.error.clone())));
        assert_eq!(began.elapsed(), Duration::ZERO);
        let (who, passed) = others.join_next().await.unwrap().unwrap();
        assert_eq!((&*who, passed), ("patient", Ok(())));
        assert!(began.elapsed() > MOST);
    }
}

/// Asks for leave at a lane, as one who waits so long at most.
fn asks(
    lane: &Arc<Lane>,
    asker: Asker,
    model: &'static str,
) -> tokio::task::JoinHandle<Result<(), ProviderError>> {
    let lane = lane.clone();
    tokio::spawn(async move { lane.place(&asker, model, 0).pass().await.map(drop) })
}

#[tokio::test(start_paused = true)]
async fn who_waits_already_need_not_wait_for_what_others_were_told() {
    const MOST: Duration = Duration::from_secs(20);
    let elsewhere = Arc::new(Elsewhere::default());
    let lane = lane(&ProviderSettings {
        max_concurrent_calls: 1,
        pauses: Some(elsewhere.clone()),
        ..settings()
    });
    let first = pass(&lane, "first").await.unwrap();
    let (patient, impatient) =
        (asks(&lane, asker("patient"), "m"), asks(&lane, impatient("impatient", MOST), "m"));
    settle().await;
    *elsewhere.until.lock().unwrap() = Some(Timestamp::now() + 40 * SECOND);
    let began = Instant::now();
    drop(first);
    assert_eq!(impatient.await.unwrap(), Err(too_long(40 * SECOND)));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(patient.await.unwrap(), Ok(()));
    assert!(began.elapsed() > MOST);
}

#[tokio::test(start_paused = true)]
async fn who_waits_already_need_not_wait_for_the_figures_of_its_model() {
    const MOST: Duration = Duration::from_secs(20);
    let lane = lane_of(2);
    let headers = |reset: &'static str| {
        let headers =
            [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", reset)];
        headers
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    };
    let mut first = pass(&lane, "first").await.unwrap();
    let mut other = lane.place(&asker("other"), "n", 0).pass().await.unwrap();
    let patient = asks(&lane, asker("patient"), "m");
    let impatient_of = |name, model| asks(&lane, impatient(name, MOST), model);
    let (gone, waits, goes) =
        (impatient_of("gone", "m"), impatient_of("waits", "n"), impatient_of("goes", "o"));
    settle().await;
    let began = Instant::now();
    other.told(StatusCode::OK, &headers("10s").into_iter().collect());
    first.told(StatusCode::OK, &headers("50s").into_iter().collect());
    drop((first, other));
    assert_eq!(gone.await.unwrap(), Err(too_long(50 * SECOND)));
    assert_eq!(goes.await.unwrap(), Ok(()));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(waits.await.unwrap(), Ok(()));
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(patient.await.unwrap(), Ok(()));
    assert_eq!(began.elapsed().as_secs(), 50);
}
