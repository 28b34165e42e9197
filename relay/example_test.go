package relay_test

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A business service that relays its own outbox. Its transactions call hook.Notify
// after COMMIT; other relays on the same database stand by.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	db, err := sql.Open("mysql", os.Getenv("SHOP_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	store, err := outbox.Open(outbox.MySQL, db, db)
	if err != nil {
		log.Fatal(err)
	}
	client, err := orbit.NewClient("https://orbit.example", os.Getenv("ORBIT_TOKEN"), orbit.ClientConfig{MinimalBatchAnswers: true})
	if err != nil {
		log.Fatal(err)
	}
	var hook outbox.Hook
	r, err := relay.New(store, []relay.Target{{Name: "warehouse", Client: client}}, relay.Config{Hook: &hook})
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
