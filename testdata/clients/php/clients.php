<?php
// The scenarios that the arguments name, with PHP's curl and with Guzzle.

require 'GuzzleHttp/autoload.php';

const BASE = 'https://api.example.invalid';

function curl(string $url, array $options = []): array
{
    $headers = [];
    $call = curl_init($url);
    curl_setopt_array($call, $options + [
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_HEADERFUNCTION => function ($call, $line) use (&$headers) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
            return strlen($line);
        },
    ]);
    $body = curl_exec($call);
    $status = curl_getinfo($call, CURLINFO_RESPONSE_CODE);
    if ($body === false) {
        throw new Exception(curl_error($call));
    }
    if ($status > 308) {
        throw new Exception("status $status: $body");
    }
    return [$status, $body, $headers];
}

function curl_token(): string
{
    $items = 0;
    for ($page = ''; ; $page = '?pageToken=' . $answer->nextPageToken) {
        $answer = json_decode(curl(BASE . "/token/items$page")[1]);
        $items += count($answer->items);
        if (!isset($answer->nextPageToken)) {
            return "$items items";
        }
    }
}

function curl_upload(): string
{
    $body = fopen('php://temp', 'r+');
    fwrite($body, str_repeat("\0", 1 << 20));
    rewind($body);
    $answer = curl(BASE . '/upload', [CURLOPT_UPLOAD => true, CURLOPT_INFILE => $body, CURLOPT_HTTPHEADER => ['Expect: 100-continue']]);
    return json_decode($answer[1])->bytes . ' bytes';
}

function curl_gzip(): string
{
    return strlen(curl(BASE . '/packed/gzip', [CURLOPT_ENCODING => 'gzip'])[1]) . ' bytes';
}

function curl_moved(): string
{
    return (string) curl(BASE . '/moved', [CURLOPT_FOLLOWLOCATION => true])[0];
}

function guzzle(): GuzzleHttp\Client
{
    return new GuzzleHttp\Client(['base_uri' => BASE]);
}

function guzzle_link(): string
{
    $items = 0;
    for ($url = '/link/items'; $url; $url = $found[1] ?? null) {
        $answer = guzzle()->get($url);
        $items += count(json_decode((string) $answer->getBody()));
        preg_match('/<([^>]*)>; rel="next"/', $answer->getHeaderLine('Link'), $found);
    }
    return "$items items";
}

function guzzle_upload(): string
{
    $answer = guzzle()->post('/upload', ['body' => new GuzzleHttp\Psr7\PumpStream((function () {
        $left = 16;
        return function () use (&$left) {
            return $left-- > 0 ? str_repeat("\0", 1 << 16) : false;
        };
    })())]);
    return json_decode((string) $answer->getBody())->bytes . ' bytes';
}

function guzzle_parallel(): string
{
    $client = guzzle();
    $calls = array_map(fn ($n) => $client->getAsync("/parallel?n=$n"), range(1, 50));
    return (string) count(GuzzleHttp\Promise\Utils::unwrap($calls));
}

foreach (array_slice($argv, 1) as $name) {
    try {
        echo "$name: " . $name() . "\n";
    } catch (Exception $error) {
        fwrite(STDERR, get_class($error) . ': ' . $error->getMessage() . "\n");
        exit(1);
    }
}
