//! Admission of clients: at most `maxclients`, and without a password only clients on this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_net::access::DEFAULT;
use pando_net::stats::Count;
use pando_redis::{Server, clients, config};

use super::connection::{Client, Dialect};
use crate::shared::Shared;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
enabled and no password is set for the default user. In this mode connections are only accepted \
from the loopback interface. If you want to connect from external computers to Redis you may adopt \
one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET \
protected-mode no' from the loopback interface by connecting to Redis from the same host the server \
is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use \
CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected \
mode by editing the Redis configuration file, and setting the protected mode option to 'no', and \
then restarting the server. 3) If you started the server manually just for testing, restart it with \
the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: \
You only need to do one of the above things in order for the server to start accepting connections \
from the outside.\r\n";

/// Accepts a client, or refuses it with an error.
pub(crate) fn admit(server: &Server, client: &Client) -> Option<Arc<clients::Client>> {
    let is_protected = server.config.number(config::PROTECTED_MODE) != 0;
    // Clients of memcached need no password, so a password does not protect from them.
    let is_open = server.needs_password() && client.dialect() != Dialect::Memcached;
    if is_protected && !is_open && !client.address().is_here {
        client.refuse(PROTECTED);
        return refused(server);
    }
    let most = server.config.size(config::MAX_CLIENTS);
    let admitted = server.clients.add(client.address().clone(), DEFAULT, most);
    if admitted.is_none() {
        client.refuse(TOO_MANY);
        return refused(server);
    }
    admitted
}

fn refused(server: &Server) -> Option<Arc<clients::Client>> {
    server.stats.add(Count::ConnectionsRejected, 1);
    None
}

/// An accepted client. The drop ends its accounting, however the connection ended.
pub(crate) struct Admitted {
    /// The state that event loops share.
    pub shared: Arc<Shared>,
    /// The entry that other threads may read.
    pub client: Arc<clients::Client>,
    connections: Arc<AtomicUsize>,
}

impl Admitted {
    pub(crate) fn new(
        shared: Arc<Shared>,
        client: Arc<clients::Client>,
        connections: Arc<AtomicUsize>,
    ) -> Self {
        shared.redis.stats.add(Count::Connections, 1);
        Self { shared, client, connections }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.redis.clients.remove(self.client.id);
        self.shared.redis.stats.add(Count::ConnectionsClosed, 1);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
