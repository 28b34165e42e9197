package worker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// The code of docs/worker-guide.md and docs/resource-keys.md. A test of internal/docstest
// finds each block of theirs here, so that what they show compiles: change both.

// Example_program is a whole worker program.
func Example_program() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	credentials, err := orbit.LoadCredentials(os.Getenv("ORBIT_CREDENTIALS_FILE"))
	if err != nil {
		log.Fatal(err)
	}
	w, err := worker.NewWorker(os.Getenv("ORBIT_URL"), credentials.Token, worker.Config{
		Queues:   []string{credentials.QueueID},
		Capacity: 4,
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "file.convert", Version: "v1"}: convertFile,
		},
	})
	if err != nil {
		log.Fatal(err) // names the field that is wrong
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err) // not drained, or refused by the server
	}
}

// A shelf keeps files by name.
type shelf struct {
	mu   sync.Mutex
	text map[string]string
}

func (s *shelf) read(_ context.Context, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, found := s.text[name]
	if !found {
		return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return text, nil
}

func (s *shelf) write(_ context.Context, name, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text[name] = text
	return nil
}

var files = shelf{text: map[string]string{"input.txt": "tea, sugar"}}

// convertFile makes a PDF of a file.
func convertFile(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	var job struct {
		Source string `json:"source"`
	}
	if err := json.Unmarshal(e.Task.Payload, &job); err != nil {
		return nil, worker.Failed(err) // nothing happened, and a repeat would fail too
	}
	text, err := files.read(ctx, job.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, worker.Failed(err)
	case err != nil:
		return nil, worker.Retryable(err) // it was only a read: nothing happened
	}
	if err := files.write(ctx, job.Source+".pdf", "%PDF-2.0 "+text); err != nil {
		return nil, err // UNKNOWN: the file may have been written
	}
	return json.Marshal(map[string]string{"target": job.Source + ".pdf"})
}

// A printer prints a page in a second. Nobody can take a page back.
type printer struct{}

func (printer) print(context.Context, int) error {
	time.Sleep(time.Second)
	return nil
}

var office printer

// printPages stops between two pages when it is told to.
func printPages(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	const pages = 8
	for page := range pages {
		switch {
		case ctx.Err() != nil && page == 0:
			return nil, worker.Cancelled(context.Cause(ctx)) // nothing happened
		case ctx.Err() != nil:
			return nil, worker.Unknown(fmt.Errorf("%d of %d pages are printed: %w", page, pages, context.Cause(ctx)))
		}
		if err := office.print(ctx, page); err != nil {
			return nil, worker.Unknown(err)
		}
		if err := e.Progress(fmt.Sprintf("%d of %d pages", page+1, pages)); err != nil {
			return nil, worker.Unknown(err)
		}
	}
	return nil, nil
}

// An objectStore owns the objects that tasks change. Its guard's tables lie beside them.
type objectStore struct {
	db    *sql.DB
	guard *resourceguard.Guard
}

// update makes w.Content the object's body, once for each operation and never for an
// outdated token. All of it commits or nothing.
func (s *objectStore) update(ctx context.Context, w resourceguard.Write) (json.RawMessage, error) {
	for {
		receipt, err := s.tryUpdate(ctx, w)
		if !errors.Is(err, resourceguard.ErrRetryable) || ctx.Err() != nil {
			return receipt, err
		}
	}
}

func (s *objectStore) tryUpdate(ctx context.Context, w resourceguard.Write) (json.RawMessage, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // no-op after Commit
	got, err := s.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "UPDATE object SET body = ? WHERE name = ?", w.Content, w.Key)
		return []byte(`{"updated":true}`), err
	})
	if err != nil {
		return nil, err
	}
	return got.Receipt, tx.Commit()
}

var objects objectStore

// updateObject hands its token to the owner of the resource and says what it knows.
func updateObject(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	receipt, err := objects.update(ctx, resourceguard.Write{
		Namespace: e.Task.NamespaceID,
		Key:       e.Task.ConcurrencyKey,
		Token:     e.ConcurrencyToken,
		Attempt:   e.AttemptID,
		Operation: e.OperationRoot, // the same in every retry, by hand too
		Content:   e.Task.Payload,  // the same bytes in every retry
	})
	var stale *resourceguard.StaleError
	switch {
	case errors.As(err, &stale) && !stale.AlreadyApplied:
		return nil, worker.Retryable(err) // refused: nothing happened
	case err != nil:
		return nil, err // UNKNOWN: the write may have happened
	}
	return receipt, nil
}

// timed logs how long a handler took and how it ended.
func timed(next worker.HandlerFunc) worker.HandlerFunc {
	return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		began := time.Now()
		result, err := next(ctx, e)
		slog.InfoContext(ctx, "handler returned", "task_id", e.Task.ID, "handler", e.Task.Handler, "took", time.Since(began), "err", err)
		return result, err // as it is: the error decides the outcome
	}
}

func Example_capacity() {
	convert := worker.Handler{Name: "file.convert", Version: "v1"}
	pages := worker.Handler{Name: "file.print", Version: "v1"}
	update := worker.Handler{Name: "object.update", Version: "v1"}
	cfg := worker.Config{
		Queues:   []string{"11111111111111111111111111111111"},
		Handlers: map[worker.Handler]worker.HandlerFunc{convert: convertFile, pages: printPages, update: updateObject},
		// 16 tasks at one time; one page is printed at a time.
		Capacity:        16,
		HandlerCapacity: map[worker.Handler]int{pages: 1},
		Middleware:      []worker.Middleware{timed},
	}
	w, err := worker.NewWorker("http://127.0.0.1:8080", os.Getenv("ORBIT_TOKEN"), cfg)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/slots", func(out http.ResponseWriter, _ *http.Request) {
		for _, s := range w.Slots() {
			fmt.Fprintln(out, s.Since.Format(time.RFC3339), s.Handler.Name, s.TaskID, s.Phase, s.Cause)
		}
	})
	log.Fatal(w.Run(context.Background()))
}

func Example_submitKeyed() {
	ctx := context.Background()
	const queueID = "11111111111111111111111111111111"
	api, err := orbit.NewClient("http://127.0.0.1:8080", os.Getenv("ORBIT_TOKEN"), orbit.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	accepted, err := api.SubmitTask(ctx, "update-object-42-operation-001", orbit.SubmitTaskRequest{
		QueueID: queueID, Handler: "object.update", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:        json.RawMessage(`{"operation_ref":"update-001","object_ref":"objects/42"}`),
		ConcurrencyKey: "object/42",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(accepted.Task.State)
}

func TestConvertFile(t *testing.T) {
	got := workertest.Run(t, convertFile, workertest.Execution{
		Task: worker.Task{Payload: json.RawMessage(`{"source":"input.txt"}`)},
	})
	if got.String() != `SUCCEEDED {"target":"input.txt.pdf"}` {
		t.Error(got)
	}
	got = workertest.Run(t, convertFile, workertest.Execution{
		Task: worker.Task{Payload: json.RawMessage(`{"source":"none.txt"}`)},
	})
	if got.Outcome != orbit.OutcomeFailed || got.Retryable {
		t.Errorf("%v, want a final failure", got)
	}
}

func TestPrintingStopsBetweenTwoPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a second costs nothing
		call := workertest.Start(t, printPages, workertest.Execution{})
		time.Sleep(2500 * time.Millisecond) // in the middle of the third page
		call.RequestCancel("wrong paper")
		got := call.Wait()
		if got.String() != "UNKNOWN: 3 of 8 pages are printed: worker: cancel requested: wrong paper" {
			t.Error(got)
		}
	})
}

func TestWorkerRepeatsAResultWhoseAnswerIsLost(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	s.Inject(workertest.Fault{Message: workertest.MessageFinish, Lose: true})
	drain := s.Work(worker.Config{Handlers: map[worker.Handler]worker.HandlerFunc{
		{Name: "file.convert", Version: "v1"}: convertFile,
	}})
	id := s.Submit(orbit.SubmitTaskRequest{Handler: "file.convert", Payload: json.RawMessage(`{"source":"input.txt"}`)})
	if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
		t.Errorf("%v, want one attempt", got)
	}
	drain()
	s.WantDrained()
}
