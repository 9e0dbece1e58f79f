package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elido-app/webhook/store"
)

// Keyring encrypts secrets in the store (AES-256-GCM, NIST SP 800-38D). Each
// ciphertext names the key it was made with, so keys can be replaced: add a new
// one, make it Current, and keep the old one until [Dispatcher.Reencrypt] has
// brought everything under the new one. The zero value stores secrets in the
// clear.
type Keyring struct {
	// Current is the id of the key that new secrets are encrypted under.
	Current string
	// Keys are 32 bytes each, by id.
	Keys map[string]Secret
}

func (k Keyring) open() (keyring, error) {
	if len(k.Keys) == 0 && k.Current == "" {
		return keyring{}, nil
	}
	r := keyring{current: k.Current, aeads: make(map[string]cipher.AEAD, len(k.Keys))}
	for id, key := range k.Keys {
		raw := key.Reveal()
		if id == "" || len(raw) != 32 {
			return keyring{}, &InvalidError{Field: fmt.Sprintf("Keys[%q]", id), Rule: "needs an id and 32 bytes"}
		}
		block, err := aes.NewCipher([]byte(raw))
		if err != nil {
			return keyring{}, err
		}
		if r.aeads[id], err = cipher.NewGCM(block); err != nil {
			return keyring{}, err
		}
	}
	if r.aeads[k.Current] == nil {
		return keyring{}, &InvalidError{Field: "Keys.Current", Rule: "must name one of Keys"}
	}
	return r, nil
}

// keyring is a Keyring ready for use.
type keyring struct {
	current string
	aeads   map[string]cipher.AEAD
}

// What is sealed; part of the associated data, so that one cannot stand in for
// the other.
const (
	sealSecret      = "secret"
	sealCredentials = "credentials"
)

// bind is the associated data of a ciphertext: whose it is and what for. Rows
// swapped in the store do not decrypt.
func bind(what string, workspaceID, endpointID int64) []byte {
	b := []byte("elido webhook 1\x00" + what + "\x00")
	b = binary.BigEndian.AppendUint64(b, uint64(workspaceID))
	return binary.BigEndian.AppendUint64(b, uint64(endpointID))
}

func (k keyring) seal(s Secret, what string, workspaceID, endpointID int64) store.Sealed {
	if k.aeads == nil || s.IsZero() {
		return store.Sealed{Data: s}
	}
	aead := k.aeads[k.current]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(s.Reveal())+aead.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return store.Sealed{
		KeyID: k.current,
		Data:  store.NewSecret(string(aead.Seal(nonce, nonce, []byte(s.Reveal()), bind(what, workspaceID, endpointID)))),
	}
}

func (k keyring) unseal(s store.Sealed, what string, workspaceID, endpointID int64) (Secret, error) {
	if s.KeyID == "" {
		return s.Data, nil
	}
	aead := k.aeads[s.KeyID]
	if aead == nil {
		return Secret{}, fmt.Errorf("the endpoint's %s is encrypted under key %q, which is not in Config.Keys", what, s.KeyID)
	}
	box := []byte(s.Data.Reveal())
	if len(box) < aead.NonceSize() {
		return Secret{}, errors.New("the endpoint's " + what + " does not decrypt: it is cut short")
	}
	n := aead.NonceSize()
	plain, err := aead.Open(nil, box[:n], box[n:], bind(what, workspaceID, endpointID))
	if err != nil {
		return Secret{}, fmt.Errorf("the endpoint's %s does not decrypt under key %q: it was made with another key or for another endpoint", what, s.KeyID)
	}
	return NewSecret(string(plain)), nil
}
