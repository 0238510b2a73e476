//! The client side of GSSAPI as a SASL mechanism (RFC 4752).
//!
//! ```text
//!   client  the ticket (AP-REQ)              server  its proof (AP-REP)
//!   client  an empty token                   server  signed: the security layers it offers, a size
//!   client  signed: no layer, size 0
//! ```

use docent_session::sasl::{SaslAction, SaslError, SaslExchange};
use libgssapi::{
    context::{ClientCtx, CtxFlags, SecurityContext as _},
    credential::{Cred, CredUsage},
    name::Name,
    oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, GSS_NT_KRB5_PRINCIPAL, OidSet},
};

use crate::{Accepted, GssapiError, GssapiErrorKind, Names};

/// The bit of a security layer: none.
const NO_LAYER: u8 = 1;

/// An exchange on one connection.
pub(crate) struct Exchange {
    names: Names,
    host: String,
    accepted: Accepted,
    state: State,
}

enum State {
    Begin,
    /// The security context is being established.
    Establishing(ClientCtx),
    /// The server's offer of security layers is pending.
    Layer(ClientCtx),
    End,
}

impl Exchange {
    pub(crate) const fn new(names: Names, host: String, accepted: Accepted) -> Self {
        Self { names, host, accepted, state: State::Begin }
    }

    /// Requests a ticket for the server, unless the cache has one. Asks the KDC and the resolver.
    fn begin(&mut self) -> Result<SaslAction, GssapiError> {
        let (server, shown) = self.names.server_name(&self.host)?;
        let client = self.names.client.as_deref();
        let subject = client.unwrap_or("the default principal");
        let of_client = |error| GssapiError::of_request(error, subject);
        let principal = client
            .map(|name| Name::new(name.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL)))
            .transpose()
            .map_err(of_client)?;
        let kerberos = OidSet::singleton(GSS_MECH_KRB5).map_err(of_client)?;
        let credential =
            Cred::acquire(principal.as_ref(), None, CredUsage::Initiate, Some(&kerberos))
                .map_err(of_client)?;
        // Mutual: the server proves that it has its key. Integrity: of the messages about layers.
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG
            | CtxFlags::GSS_C_INTEG_FLAG
            | CtxFlags::GSS_C_SEQUENCE_FLAG;
        let mut context = ClientCtx::new(Some(credential), server, flags, Some(GSS_MECH_KRB5));
        let token = context
            .step(None, None)
            .map_err(|error| GssapiError::of_request(error, &format!("{subject} to {shown}")))?;
        self.state = State::Establishing(context);
        Ok(SaslAction::Send(token.map(|token| token.to_vec()).unwrap_or_default()))
    }

    /// Checks the server's proof.
    fn establish(
        &mut self,
        mut context: ClientCtx,
        token: &[u8],
    ) -> Result<SaslAction, GssapiError> {
        if token.windows(10).any(|part| part == b"algorithm=") {
            let detail = "a challenge of DIGEST-MD5: its JAAS configuration has no Krb5LoginModule";
            return Err(GssapiError::new(GssapiErrorKind::InvalidToken, detail));
        }
        let answer = context.step(Some(token), None).map_err(|error| self.of_server(error))?;
        let is_open = context.open().map_err(|error| self.of_server(error))?;
        if is_open {
            let flags = context.flags().map_err(|error| self.of_server(error))?;
            if !flags.contains(CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG) {
                return Err(GssapiError::new(
                    GssapiErrorKind::InvalidToken,
                    "it has not proved its identity",
                ));
            }
            self.state = State::Layer(context);
        } else {
            self.state = State::Establishing(context);
        }
        Ok(SaslAction::Send(answer.map(|token| token.to_vec()).unwrap_or_default()))
    }

    /// Chooses no security layer. The identity is that of the ticket.
    fn choose_layer(
        &mut self,
        mut context: ClientCtx,
        token: &[u8],
    ) -> Result<SaslAction, GssapiError> {
        let offer = context.unwrap(token).map_err(|error| self.of_server(error))?;
        // The size is of no use without a layer: Java's server (`GssKrb5Server`) sends 65536 instead of 0.
        let [layers, _, _, _] = *offer else {
            let detail = format!("an offer of {} bytes", offer.len());
            return Err(GssapiError::new(GssapiErrorKind::InvalidToken, detail));
        };
        if layers & NO_LAYER == 0 {
            let detail = format!("it offers the layers {layers:#x}");
            return Err(GssapiError::new(GssapiErrorKind::SecurityLayer, detail));
        }
        let choice =
            context.wrap(false, &[NO_LAYER, 0, 0, 0]).map_err(|error| self.of_server(error))?;
        self.state = State::End;
        self.accepted.set();
        Ok(SaslAction::SendLast(choice.to_vec()))
    }

    fn of_server(&self, error: libgssapi::error::Error) -> GssapiError {
        GssapiError::of_library(error, &self.host)
    }
}

impl SaslExchange for Exchange {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SaslAction, SaslError> {
        let state = std::mem::replace(&mut self.state, State::End);
        let action = match (state, token) {
            (State::Begin, None) => self.begin(),
            (State::Establishing(context), Some(token)) => self.establish(context, token),
            (State::Layer(context), Some(token)) => self.choose_layer(context, token),
            _ => Err(GssapiError::new(GssapiErrorKind::InvalidToken, "no token is expected")),
        };
        action.map_err(|error| error.into_sasl(self.accepted.get()))
    }
}

impl Names {
    /// The name of the server for the library, and for errors.
    fn server_name(&self, host: &str) -> Result<(Name, String), GssapiError> {
        let principal = match (&self.server, &self.server_realm) {
            (Some(principal), _) => principal.clone(),
            (None, realm) if !self.canonicalize => {
                let principal = format!("{}/{host}", self.service);
                match realm {
                    Some(realm) => format!("{principal}@{realm}"),
                    None => principal,
                }
            }
            (None, None) => {
                let service = format!("{}@{host}", self.service);
                let name = Name::new(service.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE))
                    .map_err(|error| GssapiError::of_library(error, &service))?;
                return Ok((name, service));
            }
            (None, Some(realm)) => {
                let service = format!("{}@{host}", self.service);
                let canonical = Name::new(service.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE))
                    .and_then(|name| name.canonicalize(Some(GSS_MECH_KRB5)))
                    .and_then(|name| name.display_name())
                    .map_err(|error| GssapiError::of_library(error, &service))?;
                let canonical = String::from_utf8_lossy(&canonical);
                let (name, _realm) = canonical.split_once('@').unwrap_or((&canonical, ""));
                format!("{name}@{realm}")
            }
        };
        let name = Name::new(principal.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL))
            .map_err(|error| GssapiError::of_library(error, &principal))?;
        Ok((name, principal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gssapi;

    fn shown(kerberos: Gssapi) -> String {
        kerberos.names.server_name("zk1.test").unwrap().1
    }

    /// As `SaslServerPrincipal.getServerPrincipal`.
    #[test]
    fn the_servers_principal_has_the_parts_of_the_settings() {
        let new = || Gssapi::new().with_canonicalize_hostname(false);
        assert_eq!(shown(new()), "zookeeper/zk1.test");
        assert_eq!(shown(new().with_service_name("zk").unwrap()), "zk/zk1.test");
        assert_eq!(shown(new().with_server_realm("R").unwrap()), "zookeeper/zk1.test@R");
        assert_eq!(shown(new().with_server_principal("zk/all@R").unwrap()), "zk/all@R");
        assert_eq!(shown(Gssapi::new()), "zookeeper@zk1.test");
    }

    #[test]
    fn a_token_out_of_turn_is_an_error() {
        let names = Gssapi::new().names;
        let mut exchange = Exchange::new(names, "zk1.test".to_owned(), Accepted::default());
        let error = exchange.step(Some(b"token")).unwrap_err();
        assert!(error.to_string().contains("invalid Kerberos token"), "{error}");
        assert!(exchange.step(None).is_err());
    }
}
