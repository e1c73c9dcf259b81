from .backends import installed, stubbed
from .modules import as_acl, install_as_acl
from .stub import Call, Live, StubDriver
