//! The page in a real browser: one browser, one lab, one after the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy does not know the functions that only tests call"
)]

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    thread,
    time::Instant,
};

use docent_lab_browser::{Curator, Running, browser, eval, lab, programs, skip, until};
use docent_protocol::OpCode;
use docent_testing::{fault::Fault, tap::Tap};
use fantoccini::{
    Client,
    actions::{InputSource as _, KeyAction, KeyActions},
    key::Key,
};
use serde_json::Value;
use xtask::{Java, Server, Settings};

struct Page {
    client: Client,
    address: String,
    _running: [Running; 2],
}

impl Page {
    /// Opens what a fragment names.
    async fn open(&self, fragment: &str) {
        self.client.goto("about:blank").await.unwrap();
        self.client.goto(&format!("{}{fragment}", self.address)).await.unwrap();
        until(&self.client, "return document.body?.dataset.ready !== undefined && document.body.dataset.ready !== 'no'").await;
    }

    async fn eval(&self, script: &str) -> Value {
        eval(&self.client, script).await
    }

    async fn text(&self, script: &str) -> String {
        self.eval(script).await.as_str().unwrap_or_default().to_owned()
    }

    async fn count(&self, selector: &str) -> u64 {
        let script = format!("return document.querySelectorAll({selector:?}).length");
        self.eval(&script).await.as_u64().unwrap()
    }

    async fn error(&self) -> String {
        self.text(
            "const e = document.getElementById('error'); return e.hidden ? '' : e.textContent",
        )
        .await
    }

    /// Presses a key, as a person does.
    async fn press(&self, key: char) {
        self.press_all(&[key]).await;
    }

    async fn press_all(&self, keys: &[char]) {
        let down_and_up =
            |key: &char| [KeyAction::Down { value: *key }, KeyAction::Up { value: *key }];
        let none = KeyActions::new("keys".to_owned());
        let actions = keys.iter().flat_map(down_and_up).fold(none, |all, action| all.then(action));
        self.client.perform_actions(actions).await.unwrap();
    }

    /// The stage, the nodes, and the event at the cursor.
    async fn picture(&self) -> String {
        self.text(
            "return ['stage', 'nodes', 'now', 'time'].map((id) => document.getElementById(id).outerHTML).join()",
        )
        .await
    }

    /// Keeps a picture, if a directory for pictures is named.
    async fn keep(&self, name: &str) {
        let Some(directory) = env::var_os("DOCENT_LAB_PICTURES") else { return };
        let picture = self.client.screenshot().await.unwrap();
        fs::write(PathBuf::from(directory).join(name).with_extension("png"), picture).unwrap();
    }
}

fn key(key: Key) -> char {
    key.into()
}

/// The program that is tested. `cargo xtask test` names it.
fn program() -> PathBuf {
    let named = env::var_os("DOCENT_LAB").map(PathBuf::from);
    named.unwrap_or_else(|| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../sim/target/release/docent-lab")
    })
}

// The tap is served by other threads while the page is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_lessons_claim() {
    let Some(programs) = programs() else {
        return skip(
            "there is no chromedriver on the PATH with a chromium beside it; `cargo xtask test` fetches them",
        );
    };
    let (lab, address) = lab(&program(), &[]);
    let (driver, client) = browser(programs).await;
    let page = Page { client, address, _running: [driver, lab] };
    nothing_is_from_elsewhere(&page).await;
    each_lesson_is_played(&page).await;
    back_and_forth_gives_the_same_picture(&page).await;
    each_fault_is_clicked(&page).await;
    a_link_gives_the_same_run(&page).await;
    a_broken_link_is_a_message(&page).await;
    the_keyboard_is_enough(&page).await;
    only_what_is_in_view_is_drawn(&page).await;
    a_phone_in_landscape_has_no_overflow(&page).await;
    a_lab_that_has_ended_is_a_message(&page).await;
    live_traffic_is_shown(&page).await;
    curators_steps_are_named(&page).await;
    page.client.close().await.unwrap();
}

async fn nothing_is_from_elsewhere(page: &Page) {
    let start = Instant::now();
    page.open("").await;
    until(&page.client, "return document.querySelectorAll('#stage *').length > 5").await;
    let weight = page.eval("return performance.getEntriesByType('resource').reduce((sum, of) => sum + of.decodedBodySize, 0)").await;
    println!("first picture after {:?}, {weight} bytes", start.elapsed());
    let elsewhere = "return performance.getEntriesByType('resource').filter((of) => !of.name.startsWith(location.origin)).length";
    assert_eq!(page.eval(elsewhere).await, 0);
    // The policy refuses what a page could be made to load or run.
    let refused = "const all = []; document.addEventListener('securitypolicyviolation', (e) => all.push(e.violatedDirective)); \
                   const image = new Image(); image.src = 'http://127.0.0.2:9/'; document.body.append(image); \
                   const script = document.createElement('script'); script.textContent = 'window.ran = 1'; document.body.append(script); \
                   window.violations = all";
    page.eval(refused).await;
    until(&page.client, "return window.violations.length === 2 && window.ran === undefined").await;
}

async fn each_lesson_is_played(page: &Page) {
    page.open("").await;
    let names = page.eval("return [...document.querySelectorAll('#lessons option')].map((of) => of.value).filter(Boolean)").await;
    let names: Vec<_> = names.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        page.open(&format!("#lesson={name}")).await;
        assert_eq!(page.error().await, "", "{name}");
        page.eval("window.refused = 0; document.addEventListener('securitypolicyviolation', () => window.refused++)").await;
        // The prediction comes first, and the answer with the end.
        page.eval("document.querySelector('#choices input').click()").await;
        assert_eq!(
            page.eval("return document.getElementById('answer').hidden").await,
            true,
            "{name}"
        );
        // The play begins, and comes forward; then its end.
        page.client.find(fantoccini::Locator::Id("play")).await.unwrap().click().await.unwrap();
        until(&page.client, "return Number(document.getElementById('slider').value) > 110").await;
        page.press(key(Key::End)).await;
        until(&page.client, "return !document.getElementById('answer').hidden").await;
        let claims = page.text("return document.getElementById('claims').textContent").await;
        page.eval("document.getElementById('zoom').value = '1'; document.getElementById('zoom').onchange()").await;
        let overlaps = page.eval("return [...document.querySelectorAll('#events button')].filter((of) => of.textContent.includes('OVERLAP')).length").await;
        let claims_overlap = claims.replace("no overlap", "").contains("overlap");
        assert_eq!(overlaps.as_u64().unwrap() > 0, claims_overlap, "{name}: {claims}");
        if claims_overlap {
            // Hatched, and named: the colour is not the only sign.
            page.eval("document.querySelectorAll('#events button').forEach((of) => of.textContent.includes('OVERLAP') && of.click())").await;
            page.press(key(Key::Right)).await;
            assert!(page.count("#stage [data-bar=overlap][fill='url(#red)']").await >= 2, "{name}");
            page.press(key(Key::End)).await;
        }
        if claims.contains("late write") {
            let (kind, pattern) = match claims.contains("refused") {
                true => ("refused", "A: the storage refuses"),
                false => ("late", "A: the storage accepts"),
            };
            let last = format!(
                "[...document.querySelectorAll('#events button')].findLast((of) => of.textContent.includes({pattern:?})).click()"
            );
            page.eval(&last).await;
            assert!(page.count(&format!("#stage [data-write={kind}]")).await > 0, "{name}");
            page.press(key(Key::End)).await;
        }
        assert_eq!(
            page.eval("return window.refused").await,
            0,
            "{name}: the page breaks its own policy"
        );
        if ["naive-late-release", "strict", "lost-create-guid"].contains(&name) {
            page.eval("document.getElementById('zoom').value = '0'; document.getElementById('zoom').onchange()").await;
            page.press(key(Key::End)).await;
            // One of the pictures is dark.
            let theme = "document.getElementById('theme').click()";
            if name == "strict" {
                page.eval(theme).await;
                page.keep(name).await;
                page.eval(theme).await;
            } else {
                page.keep(name).await;
            }
        }
    }
}

async fn back_and_forth_gives_the_same_picture(page: &Page) {
    page.open("#lesson=sequential").await;
    let forward = [key(Key::Right); 30];
    page.press_all(&forward).await;
    let before = page.picture().await;
    assert!(before.contains("data-frame") && before.contains("data-watch"), "{before}");
    page.press_all(&[key(Key::End), key(Key::Home)]).await;
    assert!(page.picture().await != before);
    page.press_all(&forward).await;
    assert!(page.picture().await == before, "another picture after the way back and forth");
    page.press_all(&[key(Key::Left), key(Key::Left), key(Key::Right), key(Key::Right)]).await;
    assert!(page.picture().await == before, "another picture after two steps back and on");
}

async fn each_fault_is_clicked(page: &Page) {
    let script = "#servers+3;session+4s;run+20s;A:+mutex+5s;B:+wait+500ms,+mutex+3s";
    page.open(script).await;
    page.press_all(&[key(Key::Right); 25]).await;
    let targets = page
        .eval("return [...document.querySelector('#breaks select').options].map((of) => of.value)")
        .await;
    let before =
        page.text("return document.querySelector('#events').children[12].textContent").await;
    let mut clicked = 0;
    for target in targets.as_array().unwrap().iter().filter_map(Value::as_str) {
        let choose = format!(
            "const s = document.querySelector('#breaks select'); s.value = {target:?}; s.dispatchEvent(new Event('change'))"
        );
        page.eval(&choose).await;
        for at in 0..page.count("#breaks button").await {
            let click = format!(
                "document.body.dataset.ready = 'no'; document.querySelectorAll('#breaks button')[{at}].click()"
            );
            page.eval(&click).await;
            until(&page.client, "return document.body.dataset.ready !== 'no'").await;
            assert_eq!(page.error().await, "", "{target}: {at}");
            let faults = "return document.querySelectorAll('#stage [data-fault]').length + [...document.querySelectorAll('#events button')].filter((of) => of.textContent.includes('Fault:')).length";
            assert!(page.eval(faults).await.as_u64().unwrap() > 0, "{target}: {at}");
            assert_eq!(
                page.text("return document.querySelector('#events').children[12].textContent")
                    .await,
                before
            );
            clicked += 1;
        }
    }
    assert!(clicked > 25, "{clicked}");
    page.press('u').await;
    let taken_back = format!(
        "const faults = document.getElementById('script').value.match(/^at /gm); \
         return document.body.dataset.ready === 'yes' && faults.length === {}",
        clicked - 1
    );
    until(&page.client, &taken_back).await;
    // This message, by its arrow.
    page.open(script).await;
    page.press_all(&[key(Key::Right); 25]).await;
    page.eval("document.querySelector('#stage [data-frame]:last-of-type').dispatchEvent(new Event('click'))").await;
    let sent = page.text("return document.querySelector('#inspector .line').textContent").await;
    page.press('d').await;
    until(&page.client, "return document.getElementById('script').value.includes('drop ')").await;
    until(&page.client, "return document.body.dataset.ready === 'yes'").await;
    page.press(key(Key::End)).await;
    let lost = "return [...document.querySelectorAll('#events button')].filter((of) => of.textContent.includes('does not arrive')).length";
    assert!(page.eval(lost).await.as_u64().unwrap() > 0, "{sent}");
}

async fn a_link_gives_the_same_run(page: &Page) {
    page.open("#lesson=herd").await;
    page.press_all(&[key(Key::Right); 20]).await;
    page.eval("document.querySelector('#breaks button').click()").await;
    until(
        &page.client,
        "return location.hash.includes('cut') && document.body.dataset.ready === 'yes'",
    )
    .await;
    page.press(key(Key::End)).await;
    let (before, link) = (page.picture().await, page.text("return location.hash").await);
    page.open(&link).await;
    page.press(key(Key::End)).await;
    let after = page.picture().await;
    assert!(after == before, "{link} gives another run");
    let exported = "let text = ''; const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.saved = blob; return make(blob) }; \
                    document.getElementById('svg').click(); URL.createObjectURL = make; return window.saved.size";
    assert!(page.eval(exported).await.as_u64().unwrap() > 10_000);
    page.client.back().await.unwrap();
}

async fn a_broken_link_is_a_message(page: &Page) {
    for (link, expected) in [
        ("#A:+dance+5s", "`dance` is no step"),
        ("#%3Cimg%20src=x%20onerror=%22window.ran=1%22%3E", "is no line of a script"),
        ("#A:+mutex+5s;at+1s+explode", "is no fault"),
        ("#%E0%A4%A", "is no line of a script"),
        ("#%FF%FE;A:+mutex+5s", "is no line of a script"),
        ("#lesson=none", "is no line of a script"),
    ] {
        page.open(link).await;
        let error = page.error().await;
        assert!(error.contains(expected), "{link}: {error}");
        assert_eq!(page.eval("return window.ran === undefined && document.querySelectorAll('#error *').length === 0").await, true);
    }
    let huge = format!("#A:+mutex+5s;{}", "%23+x;".repeat(3_000));
    page.open(&huge).await;
    assert!(page.error().await.contains("longer than"), "{}", page.error().await);
}

async fn the_keyboard_is_enough(page: &Page) {
    page.open("#lesson=lost-create-guid").await;
    // From the top of the page to the player by the tabulator.
    for _ in 0..40 {
        page.press(key(Key::Tab)).await;
        if page.text("return document.activeElement.id").await == "play" {
            break;
        }
    }
    assert_eq!(page.text("return document.activeElement.id").await, "play");
    page.press_all(&[key(Key::Right); 12]).await;
    assert!(
        page.text("return document.getElementById('inspector').textContent")
            .await
            .contains("Curator")
    );
    page.press('b').await;
    assert_eq!(page.text("return document.activeElement.closest('section').id").await, "break");
    page.eval("document.activeElement.blur()").await;
    page.press('n').await;
    until(&page.client, "return location.hash === '#lesson=lost-twice'").await;
    page.press('?').await;
    assert_eq!(page.eval("return document.getElementById('keys').open").await, true);
    page.press(key(Key::Escape)).await;
    // The list has what the stage shows.
    assert!(page.count("#events li:not([hidden]) button").await > 20);
    let before = page.text("return getComputedStyle(document.body).backgroundColor").await;
    page.eval("document.getElementById('theme').click()").await;
    assert!(page.text("return getComputedStyle(document.body).backgroundColor").await != before);
}

async fn only_what_is_in_view_is_drawn(page: &Page) {
    let clients: String =
        ('A'..='P').map(|name| format!("{name}:+naive+500ms,+naive+500ms,+naive+500ms;")).collect();
    page.open(&format!("#run+60s;{clients}")).await;
    page.press(key(Key::End)).await;
    let all = page.count("#events li").await;
    let drawn = page.count("#stage [data-frame]").await;
    assert!(all > 1_000 && drawn * 4 < all, "{drawn} of {all}");
    let took = page.eval("const from = performance.now(); for (let at = 0; at < 30; at++) { document.getElementById('slider').value = at * 100; document.getElementById('slider').oninput(); } return (performance.now() - from) / 30").await;
    println!("{all} events: {took} ms for a picture");
}

async fn a_phone_in_landscape_has_no_overflow(page: &Page) {
    let fits = "return document.documentElement.scrollWidth <= innerWidth && document.getElementById('play').getBoundingClientRect().right <= innerWidth";
    // The second one is the smallest that is in use.
    for (width, height) in [(844, 390), (568, 320)] {
        page.client.set_window_size(width, height).await.unwrap();
        page.open("#lesson=sequential").await;
        page.press(key(Key::End)).await;
        assert_eq!(page.eval(fits).await, true, "{width}");
        page.keep(&format!("phone-{width}")).await;
    }
    page.client.set_window_size(1440, 900).await.unwrap();
}

/// Two pages of one lab do not disturb each other; when it ends, what they show stays.
async fn a_lab_that_has_ended_is_a_message(page: &Page) {
    let (running, address) = lab(&program(), &["--lesson", "herd"]);
    page.client.goto(&address).await.unwrap();
    let is_ready = "return document.body?.dataset.ready === 'yes'";
    until(&page.client, is_ready).await;
    let first = page.client.window().await.unwrap();
    let second = page.client.new_window(true).await.unwrap().handle;
    page.client.switch_to_window(second).await.unwrap();
    page.client.goto(&address.replace("herd", "strict")).await.unwrap();
    until(&page.client, is_ready).await;
    page.client.close_window().await.unwrap();
    page.client.switch_to_window(first).await.unwrap();
    assert_eq!(page.text("return document.getElementById('title').textContent").await, "The herd");
    drop(running);
    page.eval("document.querySelector('#breaks button').click()").await;
    until(&page.client, "return document.body.dataset.ready === 'error'").await;
    assert!(page.error().await.contains("does not answer"), "{}", page.error().await);
    page.press(key(Key::End)).await;
    assert!(page.count("#stage [data-frame]").await > 10);
}

/// A server that accepts one session, and a client that asks for one.
fn one_session(relay: &str, upstream: TcpListener) -> TcpStream {
    let server = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        stream.read_exact(&mut [0; 49]).unwrap();
        let reply = [
            &37_i32.to_be_bytes()[..],
            &0_i32.to_be_bytes(),
            &10_000_i32.to_be_bytes(),
            &0x1234_i64.to_be_bytes(),
            &16_i32.to_be_bytes(),
            &[7; 16],
            &[0],
        ];
        stream.write_all(&reply.concat()).unwrap();
    });
    let mut client = TcpStream::connect(relay).unwrap();
    // No session yet: everything but the timeout and the length of the password is zero.
    let mut request = [0; 49];
    request[3] = 45;
    request[18..20].copy_from_slice(&10_000_i16.to_be_bytes());
    request[31] = 16;
    client.write_all(&request).unwrap();
    client.read_exact(&mut [0; 41]).unwrap();
    server.join().unwrap();
    client
}

/// A lab in front of a server, its page, and the address of its relay.
async fn relay(page: &Page, upstream: &str) -> (Running, String) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let relay = free.local_addr().unwrap().to_string();
    drop(free);
    let (running, address) = lab(&program(), &["--tap", &format!("{relay}={upstream}")]);
    assert!(address.ends_with("/#traffic"), "{address}");
    page.client.goto(&address).await.unwrap();
    (running, relay)
}

async fn live_traffic_is_shown(page: &Page) {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (running, relay) = relay(page, &upstream.local_addr().unwrap().to_string()).await;
    let client = one_session(&relay, upstream);
    let shown = "return [...document.querySelectorAll('#events button')].some((of) => of.textContent.includes('s0 to A: session'))";
    until(&page.client, shown).await;
    assert_eq!(page.count("#breaks button").await, 0);
    let password = "return document.body.innerHTML.includes('07 07')";
    page.eval("[...document.querySelectorAll('#events button')].at(-1).click()").await;
    assert_eq!(page.eval(password).await, false);
    drop((client, running));
}

/// The last event of a step, in a script of the page.
fn event_of_step(number: usize) -> String {
    format!(
        "[...document.querySelectorAll('#events li:not([hidden]) button')].findLast((of) => of.textContent.includes('(step {number}: '))"
    )
}

/// A real Curator on a real server: each of the ten steps has its number and name in the list of events, and its
/// documentation, docent's line, and Curator's class and method beside the stage.
async fn curators_steps_are_named(page: &Page) {
    let java = match Java::find() {
        Ok(java) => java,
        Err(reason) => return skip(&format!("no steps of Curator: {reason}")),
    };
    let server = Server::start(&java, Settings::default()).unwrap();
    let tap = Tap::start(&server.address().to_string()).await.unwrap();
    // The first create finds no parents, and the reply to the second is lost.
    tap.inject(Fault::drop_reply(OpCode::Create2).nth(2));
    let (_running, relay) = relay(page, &tap.connect_string()).await;
    let lock = "mutex:/orders/lock";
    let mut curator = Curator::connect(&java, &relay);
    let mut done = |command: String| {
        let reply = curator.ask(&command);
        assert!(reply.starts_with("ok"), "{command}: {reply}");
    };
    done(format!("revocable {lock}"));
    done(format!("acquire {lock}"));
    assert_eq!(curator.ask(&format!("acquire {lock}#late 300")), "false");
    let waiting = curator.send(&format!("acquire {lock}#next"));
    let seen = |number| format!("return {} !== undefined", event_of_step(number));
    // The first one has left, and the next one waits.
    let waits = "const all = [...document.querySelectorAll('#events li:not([hidden]) button')].map((of) => of.textContent); \
                 const left = all.findIndex((text) => text.includes('(step 9: ')); \
                 return left >= 0 && all.slice(left).some((text) => text.includes('(step 7: '))";
    until(&page.client, waits).await;
    let released = curator.send(&format!("release {lock}"));
    assert!(
        curator.reply(&released).starts_with("ok") && curator.reply(&waiting).starts_with("ok")
    );
    for (number, (title, method)) in TEN_STEPS.into_iter().enumerate() {
        let number = number + 1;
        until(&page.client, &seen(number)).await;
        let event = page.text(&format!("return {}.textContent", event_of_step(number))).await;
        assert!(event.ends_with(&format!("(step {number}: {title})")), "{event}");
        page.eval(&format!("{}.click()", event_of_step(number))).await;
        let shown =
            page.text("return document.querySelector('#inspector .step').textContent").await;
        assert!(shown.contains(method) && shown.contains(".rs:"), "{number}: {shown}");
    }
    page.keep("curator").await;
}

/// The ten steps, each with Curator's method.
const TEN_STEPS: [(&str, &str); 10] = [
    ("create the lock node", "LockInternals.attemptLock"),
    ("create the parents", "ZKPaths.mkdirs"),
    ("search for the node", "CreateBuilderImpl.findProtectedNodeInForeground"),
    ("watch the own node", "LockInternals.internalLockLoop"),
    ("list the queue", "LockInternals.getSortedChildren"),
    ("decide", "StandardLockInternalsDriver.getsTheLock"),
    ("watch the node ahead", "LockInternals.internalLockLoop"),
    ("woken", "LockInternals.internalLockLoop"),
    ("leave the queue", "LockInternals.deleteOurPath"),
    ("release", "LockInternals.releaseLock"),
];
