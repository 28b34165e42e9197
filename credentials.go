package orbit

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/orbitkit/orbit/internal/strictjson"
)

const maxCredentials = 64 << 10 // bytes of a credentials file

// Credentials are what a credentials file holds. The token is a secret: String,
// GoString and logging leave it out, [encoding/json.Marshal] does not.
type Credentials struct {
	URL           string   `json:"url,omitempty"` // of the task server; may be empty
	Token         string   `json:"token" strict:"required"`
	ApplicationID string   `json:"application_id" strict:"required"`
	NamespaceID   string   `json:"namespace_id" strict:"required"`
	QueueID       string   `json:"queue_id" strict:"required"` // first queue of the namespace
	Permissions   []string `json:"permissions" strict:"required"`
	Environment   string   `json:"environment" strict:"required"` // label such as "test"
}

// LoadCredentials reads a credentials file strictly. Its error names the file and
// the field, never the token.
func LoadCredentials(path string) (Credentials, error) {
	c, err := loadCredentials(path)
	if err != nil {
		return Credentials{}, fmt.Errorf("orbit: credentials file %s: %w", path, err)
	}
	return c, nil
}

func loadCredentials(path string) (c Credentials, err error) {
	text, err := readBounded(path)
	if err != nil {
		return c, err
	}
	if err := strictjson.Decode(text, &c); err != nil {
		return c, invalidDocument(err, "document")
	}
	return c, c.validate()
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxCredentials {
		return nil, fmt.Errorf("must be a regular file of at most %d bytes", maxCredentials)
	}
	text, err := os.ReadFile(path)
	return text, bare(err)
}

// bare drops the path from an error of os; the caller names it.
func bare(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	return err
}

func (c Credentials) validate() error {
	if c.Token == "" {
		return invalid("token", "must not be empty")
	}
	ids := []struct{ field, id string }{
		{"application_id", c.ApplicationID}, {"namespace_id", c.NamespaceID}, {"queue_id", c.QueueID},
	}
	for _, f := range ids {
		if !ValidID(f.id) {
			return invalid(f.field, "must be 32 lower-case hexadecimal characters")
		}
	}
	return nil
}

// SaveCredentials writes a new credentials file that only its owner can read. An
// existing file is never overwritten: the error is then [os.ErrExist].
func SaveCredentials(path string, c Credentials) (err error) {
	if err := c.validate(); err != nil {
		return fmt.Errorf("orbit: credentials: %w", err)
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("orbit: credentials: %w", err)
	}
	if err := writeNew(path, append(text, '\n')); err != nil {
		return fmt.Errorf("orbit: write credentials file %s: %w", path, bare(err))
	}
	return nil
}

func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(path) // half a credential helps nobody and blocks the next try
		return err
	}
	return nil
}

// String names the credential and not its token.
func (c Credentials) String() string {
	return fmt.Sprintf("credentials of namespace %s (%s), token hidden", c.NamespaceID, c.Environment)
}

// GoString is [Credentials.String].
func (c Credentials) GoString() string { return c.String() }

// LogValue is [Credentials.String].
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }
