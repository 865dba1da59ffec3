// Java's HttpClient. By default it asks for an upgrade to HTTP/2 (h2c) on plain HTTP; with the argument "1.1" it does not.
// See wire.py for the lines.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

public class Client {
    static final Duration TIMEOUT = Duration.ofSeconds(20);
    static final int SHOWN = 4096;

    public static void main(String[] arguments) throws Exception {
        boolean plain = arguments.length > 0 && arguments[0].equals("1.1");
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String session = null;
        HttpClient client = null;
        for (String line; (line = lines.readLine()) != null; ) {
            var fields = read(line);
            if (client == null || !one(fields, "session", "").equals(session)) {
                session = one(fields, "session", "");
                var builder = HttpClient.newBuilder();
                client = plain ? builder.version(HttpClient.Version.HTTP_1_1).build() : builder.build();
            }
            try {
                out.println(send(client, fields));
            } catch (Exception error) {
                out.println("{\"status\": null, \"headers\": {}, \"body\": \"\", \"error\": " + quoted(causes(error)) + "}");
            }
        }
        System.exit(0); // clients have threads of their own
    }

    static String send(HttpClient client, Map<String, List<String>> fields) throws Exception {
        var builder = HttpRequest.newBuilder(URI.create(one(fields, "url", ""))).timeout(TIMEOUT);
        for (var line : fields.getOrDefault("header", List.of())) {
            var parts = line.split(": ", 2);
            builder.header(parts[0], parts[1]);
        }
        if (one(fields, "close", "").equals("1")) builder.header("Connection", "close"); // allowed on the command line
        builder.expectContinue(one(fields, "expect", "").equals("1"));
        builder.method(one(fields, "method", "POST"), publisher(fields));
        HttpResponse<byte[]> response = client.send(builder.build(), BodyHandlers.ofByteArray());
        var headers = new ArrayList<String>();
        response.headers().map().forEach((name, values) -> headers.add(quoted(name.toLowerCase()) + ": " + quoted(values.get(0))));
        var text = new String(response.body(), StandardCharsets.UTF_8);
        text = text.substring(0, Math.min(SHOWN, text.length()));
        return "{\"status\": " + response.statusCode() + ", \"headers\": {" + String.join(", ", headers) + "}, \"body\": "
            + quoted(text) + ", \"error\": null}";
    }

    static BodyPublisher publisher(Map<String, List<String>> fields) {
        if (!fields.containsKey("head")) return BodyPublishers.noBody();
        var fill = "x".repeat(Integer.parseInt(one(fields, "fill", "0")));
        var body = (one(fields, "head", "") + fill + one(fields, "tail", "")).getBytes(StandardCharsets.UTF_8);
        int pieces = Integer.parseInt(one(fields, "pieces", "1"));
        boolean chunked = one(fields, "chunked", "").equals("1");
        if (!chunked && pieces == 1) return BodyPublishers.ofByteArray(body);
        double pause = Double.parseDouble(one(fields, "pause", "0"));
        var streamed = BodyPublishers.ofInputStream(() -> new Paced(body, pieces, pause));
        return chunked ? streamed : BodyPublishers.fromPublisher(streamed, body.length);
    }

    /** A body that comes in pieces. */
    static class Paced extends InputStream {
        private final byte[] body;
        private final int size;
        private final double pause;
        private int at;

        Paced(byte[] body, int pieces, double pause) {
            this.body = body;
            this.size = (body.length + pieces - 1) / pieces;
            this.pause = pause;
        }

        @Override
        public int read() {
            throw new UnsupportedOperationException();
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            if (at == body.length) return -1;
            if (at > 0 && at % size == 0) {
                try {
                    Thread.sleep((long) (pause * 1000));
                } catch (InterruptedException error) {
                    throw new IOException(error);
                }
            }
            int count = Math.min(length, Math.min(size - at % size, body.length - at));
            System.arraycopy(body, at, into, offset, count);
            at += count;
            return count;
        }
    }

    static Map<String, List<String>> read(String line) {
        var fields = new LinkedHashMap<String, List<String>>();
        for (var pair : line.strip().split("&")) {
            var parts = pair.split("=", 2);
            fields.computeIfAbsent(parts[0], name -> new ArrayList<>()).add(URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        return fields;
    }

    static String one(Map<String, List<String>> fields, String name, String otherwise) {
        return fields.containsKey(name) ? fields.get(name).get(0) : otherwise;
    }

    static String causes(Throwable error) {
        var text = new StringBuilder(error.toString());
        for (var cause = error.getCause(); cause != null; cause = cause.getCause()) text.append(" <- ").append(cause);
        return text.toString();
    }

    static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') out.append('\\').append(each);
            else if (each < ' ') out.append(String.format("\\u%04x", (int) each));
            else out.append(each);
        }
        return out.append('"').toString();
    }
}
