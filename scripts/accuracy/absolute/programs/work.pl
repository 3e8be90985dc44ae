# What Perl is used for: regular expressions, hashes, sorting, joining and closures over a text. work.pl PASSES FILE
use strict;
use warnings;

my ($passes, $file) = @ARGV;
open my $in, '<', $file or die "$file: $!";
my @lines = <$in>;
my $check = 0;

sub words {
    my ($lines) = @_;
    my %seen;
    for my $line (@$lines) {
        $seen{lc $1}++ while $line =~ /\b([a-z]\w{2,})\b/g;
    }
    my @order = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
    return join ',', @order[0 .. 9];
}

sub rewrite {
    my ($lines) = @_;
    my $length = 0;
    for my $line (@$lines) {
        (my $copy = $line) =~ s/(\d+)/<$1>/g;
        $copy =~ tr/a-y/b-z/;
        my @fields = split / /, $copy;
        $length += length join '-', reverse @fields;
    }
    return $length;
}

sub sieve {
    my ($limit) = @_;
    my @composite;
    my $count = 0;
    for my $number (2 .. $limit) {
        next if $composite[$number];
        $count++;
        for (my $multiple = $number * $number; $multiple <= $limit; $multiple += $number) { $composite[$multiple] = 1 }
    }
    return $count;
}

for (1 .. $passes) {
    $check = ($check * 31 + length(words(\@lines)) + rewrite(\@lines) + sieve(6000)) % 1000003;
}
print "$check\n";
