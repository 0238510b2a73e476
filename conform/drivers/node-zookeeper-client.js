// node-zookeeper-client's driver for `docent conform client`: `node node-zookeeper-client.js CONNECT`.
"use strict";

const zookeeper = require("node-zookeeper-client");

let client;

const say = (line) => process.stdout.write(`${line.trimEnd()}\n`);

function word(state) {
    switch (state.getName()) {
        case "SYNC_CONNECTED":
        case "CONNECTED_READ_ONLY":
            return "connected";
        case "EXPIRED":
            return "expired";
        default:
            return "suspended";
    }
}

function connect(timeout, done) {
    client = zookeeper.createClient(process.argv[2], { sessionTimeout: timeout });
    client.on("state", (state) => say(`! state ${word(state)}`));
    client.once("connected", () => done());
    client.connect();
}

function answer(verb, [path, data, version], done) {
    switch (verb) {
        case "connect":
            return connect(Number(path), done);
        case "create":
            return client.create(path, Buffer.from(data), done);
        case "get":
            return client.getData(path, (error, data, stat) =>
                done(error, stat && `${stat.version} ${data || ""}`));
        case "set":
            return client.setData(path, Buffer.from(data), version === undefined ? -1 : Number(version),
                (error, stat) => done(error, stat && stat.version));
        case "delete":
            return client.remove(path, done);
        case "children":
            return client.getChildren(path, (error, children) => done(error, children && children.length));
        case "watch":
            return client.exists(path, () => say(`! event ${path}`), (error, stat) => done(error, Boolean(stat)));
        case "multi":
            return client.transaction().create(path).create(data).commit((error) => done(error));
        case "state":
            return done(null, word(client.getState()));
        default:
            client.close();
            return done();
    }
}

// NO_NODE is NONODE.
const name = (error) => String(error.name || error.code || error.message).replace(/[^A-Za-z]/g, "").toUpperCase();

function perform(line) {
    const [number, verb, ...words] = line.split(" ");
    const done = (error, value) => say(`${number} ${error ? `error ${name(error)}` : `ok ${value ?? ""}`}`);
    try {
        answer(verb, words, done);
    } catch (error) {
        done(error);
    }
    if (verb === "close") {
        // An open standard input would keep the process.
        process.stdin.destroy();
    }
}

const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", perform);
