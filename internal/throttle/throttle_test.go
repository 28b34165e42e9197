package throttle

import "testing"

// API-027: who counts as one source of failures.
func TestAnAddressAndItsNeighboursAreOneSource(t *testing.T) {
	same := [][2]string{
		{"192.0.2.1:1", "192.0.2.1:2"}, {"192.0.2.1:1", "[::ffff:192.0.2.1]:2"},
		{"[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff::9]:2"}, {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1"},
	}
	for _, pair := range same {
		if source(pair[0]) != source(pair[1]) {
			t.Errorf("%s and %s are two sources", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"192.0.2.1:1", "192.0.2.2:1"}, {"[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1"}, {"a", "b"}} {
		if source(pair[0]) == source(pair[1]) {
			t.Errorf("%s and %s are one source", pair[0], pair[1])
		}
	}
}
