# The scenarios that the arguments name, with Perl's two clients.
use strict;
use warnings;
use HTTP::Request;
use HTTP::Tiny;
use JSON::PP;
use LWP::UserAgent;

my $base = 'https://api.example.invalid';
my $lwp  = LWP::UserAgent->new;
my $tiny = HTTP::Tiny->new(verify_SSL => 1);

sub lwp {
    my $answer = $lwp->request(HTTP::Request->new(@_));
    die 'status ' . $answer->code . ': ' . $answer->decoded_content . "\n" if $answer->code > 308;
    return $answer;
}

sub tiny {
    my $answer = $tiny->request(@_);
    die "status $answer->{status}: $answer->{content}\n" if $answer->{status} > 308;
    return $answer;
}

my %scenarios = (
    lwp_token => sub {
        my ($items, $page) = (0, '');
        while (1) {
            my $answer = decode_json(lwp(GET => "$base/token/items$page")->content);
            $items += @{ $answer->{items} };
            return "$items items" unless $answer->{nextPageToken};
            $page = "?pageToken=$answer->{nextPageToken}";
        }
    },
    lwp_upload => sub {
        my $left = 16;
        my $answer = lwp(POST => "$base/upload", [], sub { $left-- > 0 ? "\0" x 65_536 : '' });
        return decode_json($answer->content)->{bytes} . ' bytes';
    },
    lwp_moved  => sub { lwp(GET => "$base/moved")->code },
    tiny_link => sub {
        my ($items, $url) = (0, "$base/link/items");
        while ($url) {
            my $answer = tiny(GET => $url);
            $items += @{ decode_json($answer->{content}) };
            ($url) = ($answer->{headers}{link} // '') =~ /<([^>]*)>; rel="next"/;
        }
        return "$items items";
    },
    tiny_upload => sub {
        my $left = 16;
        my $answer = tiny(POST => "$base/upload", { content => sub { $left-- > 0 ? "\0" x 65_536 : '' } });
        return decode_json($answer->{content})->{bytes} . ' bytes';
    },
    tiny_moved => sub { tiny(GET => "$base/moved")->{status} },
);

$| = 1;
for my $name (@ARGV) {
    my $result = eval { $scenarios{$name}->() };
    if ($@) {
        print STDERR $@;
        exit 1;
    }
    print "$name: $result\n";
}
