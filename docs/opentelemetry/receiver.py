"""Stands in for a collector: prints the spans and metrics that arrive by OTLP/HTTP in JSON, at port 4318."""

import http.server
import json


def values(attributes):
    pairs = ((it["key"], *it["value"].values()) for it in attributes)
    return {key: value for key, value in pairs if key not in ("target", "level")}


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body.get("resourceSpans", []):
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                events = [(it["name"], values(it["attributes"])) for it in span["events"]]
                print(span["parentSpanId"] or "-", span["spanId"], span["name"], values(span["attributes"]), *events)
        for resource in body.get("resourceMetrics", []):
            for metric in (metric for scope in resource["scopeMetrics"] for metric in scope["metrics"]):
                print(metric["name"], metric["sum"]["dataPoints"][0]["asInt"])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


http.server.HTTPServer(("127.0.0.1", 4318), Receiver).serve_forever()
