//! Empty: the package exists for its dependency only.
