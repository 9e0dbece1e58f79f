package sig

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// SecretPrefix begins every secret that NewSecret makes.
const SecretPrefix = "whsec_"

// How long a secret may be, in bytes.
const (
	MinSecretLen = 24
	MaxSecretLen = 256
)

// The rules for secrets. The errors name the rule and never the value.
var (
	ErrSecretEmpty  = errors.New("the secret is empty; is the setting that holds it set?")
	ErrSecretLength = fmt.Errorf("a secret has %d to %d bytes", MinSecretLen, MaxSecretLen)
	ErrSecretNUL    = errors.New("a secret has no NUL byte")
	ErrSecretSpace  = errors.New("a secret has no white space")
	ErrSecretBase64 = errors.New("a secret for Standard Webhooks is base64 after " + SecretPrefix)
)

// CheckSecret returns nil, ErrSecretEmpty, ErrSecretLength, ErrSecretNUL or ErrSecretSpace.
//
// HMAC pads short keys with zeros, so a NUL at the end would make another
// secret with the same MACs (RFC 2104, section 2); white space is what gets
// lost or added when a secret is copied.
func CheckSecret(secret string) error {
	switch {
	case secret == "":
		return ErrSecretEmpty
	case len(secret) < MinSecretLen || len(secret) > MaxSecretLen:
		return ErrSecretLength
	case strings.IndexByte(secret, 0) >= 0:
		return ErrSecretNUL
	case strings.ContainsFunc(secret, unicode.IsSpace):
		return ErrSecretSpace
	}
	return nil
}

// NewSecret makes a secret: "whsec_" and 32 random bytes in padded standard
// base64. Every scheme accepts it.
func NewSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return SecretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// NewKey makes the key of both Elido schemes: the whole secret as it is,
// "whsec_" included. The secret must pass CheckSecret.
func NewKey(secret string) (*Key, error) {
	if err := CheckSecret(secret); err != nil {
		return nil, err
	}
	return newKey([]byte(secret)), nil
}

// NewStandardKey makes the key of Standard Webhooks: the bytes that the secret
// encodes after "whsec_", which may be missing, as in that project's own
// libraries. The secret must pass CheckSecret, and the rest must be padded
// standard base64, or the error is ErrSecretBase64.
func NewStandardKey(secret string) (*Key, error) {
	if err := CheckSecret(secret); err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
	if err != nil {
		return nil, ErrSecretBase64 // the decoder's own error quotes the place
	}
	return newKey(key), nil
}
