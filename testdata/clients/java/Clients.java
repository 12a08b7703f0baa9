import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.io.ByteArrayInputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The scenarios that the arguments name, with Java's two clients. */
public class Clients {
    static final String BASE = "https://api.example.invalid";
    static final HttpClient CLIENT = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NORMAL).build();

    static String connectionGet() throws IOException {
        HttpURLConnection call = (HttpURLConnection) URI.create(BASE + "/file").toURL().openConnection();
        return call.getResponseCode() + " " + body(call).length;
    }

    static String connectionUpload() throws IOException {
        HttpURLConnection call = (HttpURLConnection) URI.create(BASE + "/upload").toURL().openConnection();
        call.setDoOutput(true);
        call.setChunkedStreamingMode(1 << 16);
        call.getOutputStream().write(new byte[1 << 20]);
        call.getOutputStream().close();
        return new String(body(call)).replaceAll("[^0-9]", "") + " bytes";
    }

    static byte[] body(HttpURLConnection call) throws IOException {
        if (call.getResponseCode() > 308) {
            throw new IOException("status " + call.getResponseCode() + ": " + new String(call.getErrorStream().readAllBytes()));
        }
        try (InputStream in = call.getInputStream()) {
            return in.readAllBytes();
        }
    }

    static HttpResponse<String> send(HttpRequest.Builder request) throws Exception {
        HttpResponse<String> answer = CLIENT.send(request.build(), BodyHandlers.ofString());
        if (answer.statusCode() > 308) {
            throw new IOException("status " + answer.statusCode() + ": " + answer.body());
        }
        return answer;
    }

    static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(BASE + path));
    }

    static String clientGet() throws Exception {
        HttpResponse<String> answer = send(to("/file"));
        return answer.statusCode() + " " + answer.body().length();
    }

    static String clientUpload() throws Exception {
        HttpRequest.Builder upload = to("/upload").POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(new byte[1 << 20])));
        return send(upload.expectContinue(true)).body().replaceAll("[^0-9]", "") + " bytes";
    }

    static String clientMoved() throws Exception {
        return String.valueOf(send(to("/moved")).statusCode());
    }

    static String clientParallel() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> calls = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            calls.add(CLIENT.sendAsync(to("/parallel?n=" + i).build(), BodyHandlers.ofString()));
        }
        int good = 0;
        for (CompletableFuture<HttpResponse<String>> call : calls) {
            good += call.get().statusCode() == 200 ? 1 : 0;
        }
        return String.valueOf(good);
    }

    static String run(String name) throws Exception {
        switch (name) {
            case "connection_get": return connectionGet();
            case "connection_upload": return connectionUpload();
            case "client_get": return clientGet();
            case "client_upload": return clientUpload();
            case "client_moved": return clientMoved();
            case "client_parallel": return clientParallel();
            default: throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] names) {
        for (String name : names) {
            try {
                System.out.println(name + ": " + run(name));
            } catch (Exception e) {
                System.err.println(e);
                System.exit(1);
            }
        }
        System.exit(0); // the client's threads stay
    }
}
