// The driver of npm's zookeeper, a binding of ZooKeeper's C client, for `docent conform client`:
// `node zookeeper.js CONNECT`.
"use strict";

const ZooKeeper = require("zookeeper");

let client;
// The client's numbers of its states and errors have names in its constants.
const { constants } = ZooKeeper;
const names = Object.fromEntries(Object.entries(constants).filter(([name]) => /^Z[A-Z]+$/.test(name))
    .map(([name, code]) => [code, name.slice(1)]));

const say = (line) => process.stdout.write(`${line.trimEnd()}\n`);

function word(state) {
    switch (state) {
        case constants.ZOO_CONNECTED_STATE:
            return "connected";
        case constants.ZOO_EXPIRED_SESSION_STATE:
            return "expired";
        default:
            return "suspended";
    }
}

function connect(timeout) {
    client = new ZooKeeper({ connect: process.argv[2], timeout, debug_level: constants.ZOO_LOG_LEVEL_ERROR });
    client.on("connect", () => say("! state connected"));
    client.on("connecting", () => say("! state suspended"));
    client.on("close", () => say("! state expired"));
    return new Promise((resolve, reject) =>
        client.connect({}, (error) => (error ? reject(error) : resolve(""))));
}

async function answer(verb, [path, data, version]) {
    switch (verb) {
        case "connect":
            return connect(Number(path));
        case "create":
            return client.create(path, data, constants.ZOO_PERSISTENT);
        case "get": {
            const [stat, value] = await client.get(path, false);
            return `${stat.version} ${value ?? ""}`;
        }
        case "set":
            return (await client.set(path, data, version === undefined ? -1 : Number(version))).version;
        case "delete":
            await client.delete_(path, -1);
            return "";
        case "children":
            return (await client.get_children(path, false)).length;
        case "watch":
            return client.w_pathExists(path, (type) => type === constants.ZOO_SESSION_EVENT || say(`! event ${path}`));
        case "multi":
            return undefined; // The client has no transactions.
        case "state":
            return word(client.state);
        default:
            client.close();
            return "";
    }
}

async function perform(line) {
    const [number, verb, ...words] = line.split(" ");
    try {
        const value = await answer(verb, words);
        say(value === undefined ? `${number} skip` : `${number} ok ${value}`);
    } catch (error) {
        // The message begins with the code: "-101 no node".
        say(`${number} error ${error.name === "Error" ? (names[parseInt(error.message)] ?? "OTHER") : error.name}`);
    }
    if (verb === "close") {
        // An open standard input would keep the process.
        process.stdin.destroy();
    }
}

const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", perform);
