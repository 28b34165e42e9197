package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/drivers"
)

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// A reference says where a secret is. In a configuration file none stands itself.
type reference struct {
	what string // name of the field without _file and _env
	file string
	env  string
}

func (r reference) given() bool { return r.file != "" || r.env != "" }

// field is the name of the field that is given.
func (r reference) field() string {
	if r.file != "" {
		return r.what + "_file"
	}
	return r.what + "_env"
}

// secret reads what a reference names; empty without one, or after a mistake.
func (f *file) secret(path string, r reference) string {
	switch {
	case r.file != "" && r.env != "":
		f.at(path+"."+r.what+"_env", fmt.Sprintf("must not stand beside %s_file: give one of them", r.what))
	case r.file != "":
		value, err := ReadSecret(r.file)
		if err != nil {
			f.at(path+"."+r.what+"_file", err.Error())
		}
		return value
	case r.env != "":
		value := f.get(r.env)
		if value == "" {
			f.at(path+"."+r.what+"_env", fmt.Sprintf("the environment variable %s is not set", r.env))
		}
		return value
	}
	return ""
}

// ReadSecret returns what a file holds, without line ends at its end. Its error names the
// file and never its content.
func ReadSecret(path string) (string, error) {
	text, err := readFile(path, maxSecret)
	value := strings.TrimRight(string(text), "\r\n")
	if err == nil && value == "" {
		err = errors.New("is empty")
	}
	if err != nil {
		return "", fmt.Errorf("file %s: %w", path, err)
	}
	return value, nil
}

// credential completes a target by its credentials file, or by a token.
func (f *file) credential(path string, t *Target, credentials string, token reference) {
	switch {
	case credentials != "" && token.given():
		f.at(path+".credentials_file", "must not stand beside a token: give one of them")
	case credentials != "":
		c, err := orbit.LoadCredentials(credentials)
		if err != nil {
			f.at(path+".credentials_file", strings.TrimPrefix(err.Error(), "orbit: "))
			return
		}
		t.URL, t.Token, t.NamespaceID = cmp.Or(t.URL, c.URL), c.Token, cmp.Or(t.NamespaceID, c.NamespaceID)
	case token.given():
		t.Token = f.secret(path, token)
	default:
		f.at(path+".credentials_file", "is required, or token_file, or token_env")
	}
}

// A databaseReference says where a database is: an address without its password, and where
// that is, or where the whole address is.
type databaseReference struct {
	plain    string
	password reference
	whole    reference
}

// database returns the address of a source; empty after a mistake.
func (f *file) database(path string, r databaseReference) string {
	r.whole.what, r.password.what = "database", "password"
	field := path + ".database"
	switch {
	case r.plain != "" && r.whole.given():
		f.at(field, "must not stand beside database_file or database_env: give one of them")
	case r.plain == "" && !r.whole.given():
		f.at(field, "is required, or database_file, or database_env")
	case r.whole.given() && r.password.given():
		f.at(path+".password_file", "goes with database only: the whole address holds its password")
	case r.whole.given():
		return f.checked(field, f.secret(path, r.whole))
	default:
		return f.withPassword(path, r)
	}
	return ""
}

// checked returns an address that can be read; empty after a mistake.
func (f *file) checked(field, address string) string {
	if address == "" {
		return "" // told already
	}
	if err := drivers.Validate(address); err != nil {
		f.at(field, strings.TrimPrefix(strings.TrimPrefix(err.Error(), "database address "), "database address: "))
		return ""
	}
	return address
}

// withPassword puts the password where the driver's DSN has it: user:password@network.
func (f *file) withPassword(path string, r databaseReference) string {
	field := path + ".database"
	plain := f.checked(field, r.plain)
	if plain == "" {
		return ""
	}
	dsn, isMySQL := strings.CutPrefix(plain, "mysql:")
	if !isMySQL {
		if r.password.given() {
			f.at(path+"."+"password_file", "goes with a MySQL database only")
		}
		return r.plain
	}
	user, rest := cutUser(dsn)
	switch {
	case strings.Contains(user, ":"):
		f.at(field, "must not hold a password: put it into password_file or password_env")
	case !r.password.given():
		return r.plain
	case rest == "":
		f.at(field, "names no user: want mysql:user@tcp(host:3306)/database")
	default:
		return "mysql:" + user + ":" + f.secret(path, r.password) + rest
	}
	return ""
}

// cutUser cuts a DSN before the "@" that ends user and password, which is the last one
// before the database's name.
func cutUser(dsn string) (user, rest string) {
	end := strings.LastIndexByte(dsn, '/')
	if end < 0 {
		end = len(dsn)
	}
	at := strings.LastIndexByte(dsn[:end], '@')
	if at < 0 {
		return "", ""
	}
	return dsn[:at], dsn[at:]
}

// bare drops the path from an error of os.
func bare(err error) error {
	var withPath *os.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	return err
}
