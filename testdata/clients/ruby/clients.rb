# The scenarios that the arguments name, with Ruby's own client and three others.
require 'json'
require 'net/http'
require 'open-uri'

BASE = 'https://api.example.invalid'

def send_net(request)
  Net::HTTP.start(request.uri.host, request.uri.port, use_ssl: true) do |http|
    answer = http.request(request)
    answer.value if answer.code.to_i > 308 # raises
    answer
  end
rescue Net::HTTPExceptions => e
  raise "#{e.message}: #{e.response.body}"
end

def net_token
  items = 0
  page = ''
  loop do
    answer = JSON.parse(send_net(Net::HTTP::Get.new(URI("#{BASE}/token/items#{page}"))).body)
    items += answer['items'].size
    return "#{items} items" unless answer['nextPageToken']

    page = "?pageToken=#{answer['nextPageToken']}"
  end
end

def net_upload
  request = Net::HTTP::Post.new(URI("#{BASE}/upload"), 'Transfer-Encoding' => 'chunked', 'Content-Type' => 'application/octet-stream', 'Expect' => '100-continue')
  request.body_stream = StringIO.new("\0" * (1 << 20))
  "#{JSON.parse(send_net(request).body)['bytes']} bytes"
end

def net_gzip
  "#{send_net(Net::HTTP::Get.new(URI("#{BASE}/packed/gzip"))).body.size} bytes"
end

def openuri_moved
  URI("#{BASE}/moved").open.status.first
end

def faraday_get
  require 'faraday'
  answer = Faraday.new(BASE) { |f| f.response(:raise_error) && f.adapter(:net_http) }.get('/file')
  "#{answer.status} #{answer.body.size}"
rescue Faraday::Error => e
  raise "#{e.message}: #{e.response && e.response[:body]}"
end

def httpclient_get
  require 'httpclient'
  client = HTTPClient.new
  client.ssl_config.set_default_paths # else it trusts a list of its own
  answer = client.get("#{BASE}/file")
  raise "status #{answer.status}: #{answer.body}" if answer.status > 308

  "#{answer.status} #{answer.body.size}"
end

def issues
  require 'octokit'
  github = Octokit::Client.new(access_token: 'an-example', auto_paginate: true)
  github.repo('octo/hello')
  "#{github.issues('octo/hello').size} issues"
end

$stdout.sync = true
ARGV.each do |name|
  puts "#{name}: #{send(name)}"
rescue StandardError => e
  abort "#{e.class}: #{e.message}"
end
