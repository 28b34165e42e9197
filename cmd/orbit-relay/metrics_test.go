package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
)

// REL-021: on a listener of their own, without payload, key or token, with labels of few
// values; and the guide names no metric that is not there.
func TestMetricsTellWhatTheRelayDoes(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	s.enqueue("subject-1", "subject-2")
	address := freeport.Address(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		code, _, _ := call(ctx, s.env(), "run", "--target", "shop", "--metrics-address", address)
		ended <- code
	}()
	var text string
	scrape := func() bool {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		text = string(body)
		return err == nil
	}
	eventually(t, "both rows are accepted", func() bool {
		return scrape() && strings.Contains(text, `orbit_relay_answers_total{outcome="accepted",target="shop"} 2`)
	})
	for _, want := range []string{
		`orbit_relay_requests_total{target="shop"}`, `orbit_relay_request_duration_seconds_count{target="shop"}`,
		`orbit_relay_request_rows_sum{target="shop"} 2`, `orbit_relay_lag_seconds_count{target="shop"} 2`, "orbit_relay_leases_lost_total 0",
		"orbit_relay_shards_led 1", "orbit_relay_leads_total 1", "orbit_relay_rows_in_flight ", "orbit_relay_purged_rows_total 0",
		`orbit_relay_target_state{state="open",target="shop"} 1`, `orbit_relay_target_state{state="paused",target="shop"} 0`,
		"orbit_relay_unclaimed_targets 0", `orbit_outbox_rows{state="BLOCKED"} 0`, "orbit_outbox_oldest_due_age_seconds ",
		"orbit_outbox_read_timestamp_seconds ", "orbit_outbox_read_failures_total 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	for _, secret := range []string{"subject-1", "orders.ship", s.credentials.Token, s.credentials.QueueID} {
		if strings.Contains(text, secret) {
			t.Errorf("metrics show %q", secret)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	guide, err := os.ReadFile("../../docs/outbox-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`orbit_(?:relay|outbox)_[a-z_]*[a-z](?:_bucket)?`).FindAllString(string(guide), -1)
	for _, name := range named {
		if strings.HasPrefix(name, "orbit_outbox_") && !strings.Contains(name, "rows") && !strings.Contains(name, "oldest") && !strings.Contains(name, "read") {
			continue // a table
		}
		if !strings.Contains(text, name) {
			t.Errorf("the guide names %s, which is no metric", name)
		}
	}
	if len(named) < 5 {
		t.Errorf("the guide names %d metrics", len(named))
	}
}
