import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import software.amazon.awssdk.core.async.AsyncRequestBody;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.core.sync.ResponseTransformer;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.S3Exception;

/** The AWS SDK for Java 2 in the matrix of clients, told what to do line by line as worker_test.go says. */
class Main {
    private static final long MULTIPART = 8 << 20;

    private final String bucket;
    private final S3Client s3;
    private final S3AsyncClient async;

    Main(String endpoint, String bucket) {
        this.bucket = bucket;
        s3 = S3Client.builder().endpointOverride(URI.create(endpoint)).forcePathStyle(true).build();
        async = S3AsyncClient.builder().endpointOverride(URI.create(endpoint)).forcePathStyle(true)
            .multipartEnabled(true).build();
    }

    /** Small ones by the synchronous client, large ones in parts by the asynchronous one. */
    private void put(String key, Path file) throws Exception {
        if (Files.size(file) < MULTIPART) {
            s3.putObject(b -> b.bucket(bucket).key(key), RequestBody.fromFile(file));
            return;
        }
        async.putObject(b -> b.bucket(bucket).key(key), AsyncRequestBody.fromFile(file)).join();
    }

    private List<String> list(String prefix) {
        var keys = new ArrayList<String>();
        s3.listObjectsV2Paginator(b -> b.bucket(bucket).prefix(prefix)).contents().forEach(o -> keys.add(o.key()));
        return keys;
    }

    private void get(String key, String range, Path file) throws Exception {
        Files.deleteIfExists(file);
        s3.getObject(b -> b.bucket(bucket).key(key).range(range), ResponseTransformer.toFile(file));
    }

    private void removeAll(String prefix) {
        var keys = list(prefix).stream().map(k -> ObjectIdentifier.builder().key(k).build()).toList();
        var answer = s3.deleteObjects(b -> b.bucket(bucket).delete(d -> d.objects(keys)));
        if (answer.hasErrors()) {
            throw new IllegalStateException(answer.errors().toString());
        }
    }

    private List<String> run(String[] c) throws Exception {
        switch (c[0]) {
            case "put" -> put(c[1], Path.of(c[2]));
            case "list" -> {
                return list(c[1]);
            }
            case "get" -> get(c[1], null, Path.of(c[2]));
            case "range" -> get(c[1], "bytes=" + c[2] + "-" + c[3], Path.of(c[4]));
            case "copy" -> s3.copyObject(
                b -> b.sourceBucket(bucket).sourceKey(c[1]).destinationBucket(bucket).destinationKey(c[2]));
            case "removeAll" -> removeAll(c[1]);
            case "remove" -> s3.deleteObject(b -> b.bucket(bucket).key(c[1]));
            default -> throw new IllegalArgumentException(c[0]);
        }
        return List.of();
    }

    private String answer(String line) {
        try {
            var answer = new ArrayList<String>(List.of("ok"));
            answer.addAll(run(line.split("\t")));
            return String.join("\t", answer);
        } catch (Exception e) {
            var cause = e instanceof CompletionException ? e.getCause() : e;
            if (cause instanceof S3Exception s && s.statusCode() == 404) {
                return "missing";
            }
            return "error\t" + cause.toString().replaceAll("\\s+", " ");
        }
    }

    public static void main(String[] args) throws Exception {
        var worker = new Main(args[0], args[1]);
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            out.println(worker.answer(line));
        }
        worker.s3.close();
        worker.async.close();
    }
}
