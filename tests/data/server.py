"""A small http server with byte ranges, for tests: counts requests, and can cut a transfer off."""
import http.server
import os
import threading


class Server:
    def __init__(self, folder, ranges=True):
        self.requests, self.cut_after = [], None
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, body):
                owner.requests.append((self.command, self.path, self.headers.get("Range")))
                path = os.path.join(folder, self.path.lstrip("/"))
                if not os.path.isfile(path):
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                data = open(path, "rb").read()
                asked = self.headers.get("Range") if ranges and body else None
                first, last = 0, len(data) - 1
                if asked:
                    begin, end = asked.removeprefix("bytes=").split("-")
                    first, last = int(begin), min(int(end or last), last)
                self.send_response(206 if asked else 200)
                if asked:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
                self.send_header("Content-Length", str(last - first + 1))
                self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
                self.end_headers()
                if not body:
                    return
                part = data[first:last + 1]
                if owner.cut_after is not None:
                    part, owner.cut_after = part[:owner.cut_after], None
                    self.close_connection = True
                self.wfile.write(part)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
