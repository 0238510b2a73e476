//! Certificates for the TLS tests.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

/// A certificate authority.
pub struct Authority {
    pub issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, both in PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn identify(&self, common_name: &str, names: &[&str]) -> Identity {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, common_name);
        self.identify_subject(subject, names)
    }

    /// An identity of a server at 127.0.0.1.
    pub fn identify_server(&self) -> Identity {
        self.identify("server", &["127.0.0.1"])
    }

    pub fn identify_subject(&self, subject: DistinguishedName, names: &[&str]) -> Identity {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = subject;
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}
