# SPDX-License-Identifier: GPL-2.0-or-later
"""A small OpenStack inside a lab: its control plane on the node "sm", a nova-compute on each host.

All of it are services of the lab, so all of it ends with the lab; all files are below LAB_DIR/openstack."""
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/e2e"))
sys.path.insert(0, str(TOP / "tests/lab"))
from iblab import conf as labconf  # noqa: E402
from labtest import BUILD, Failure, wait_for  # noqa: E402

HERE, CACHE = TOP / "openstack/check", TOP / "build/cache"
INSIDE = "/run/lab/openstack"  # where the lab's processes see the folder
STATE = "/var/lib/libvirt/nova"  # each host has its own /var/lib/libvirt
PYTHON = "/usr/bin/python3"
IP = labconf.SM_IP
PORTS = {"mariadb": 3306, "rabbitmq": 5672, "keystone": 5000, "placement": 8778, "glance": 9292, "neutron": 9696,
         "nova-api": 8774}
START_S = 600  # only a fault takes so long
BANDWIDTH_MIB_S = 32  # so that pre-copy lasts

CLIENT = {"OS_AUTH_URL": f"http://{IP}:5000/v3", "OS_USERNAME": "admin", "OS_PASSWORD": "secret",
          "OS_PROJECT_NAME": "admin", "OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default",
          "OS_IDENTITY_API_VERSION": "3", "OS_REGION_NAME": "RegionOne", "OS_COMPUTE_API_VERSION": "2.90",
          "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8"}

AUTH = {"auth_type": "password", "auth_url": f"http://{IP}:5000/v3", "username": "admin", "password": "secret",
        "project_name": "admin", "user_domain_id": "default", "project_domain_id": "default",
        "region_name": "RegionOne"}


def database(name):
    return f"mysql+pymysql://root@{IP}/{name}?charset=utf8"


DATABASES = ["keystone", "placement", "glance", "nova_api", "nova_cell0", "nova", "neutron"]

KEYSTONE = {"database": {"connection": database("keystone")},
            "token": {"provider": "fernet"},
            "fernet_tokens": {"key_repository": f"{INSIDE}/fernet"},
            "credential": {"key_repository": f"{INSIDE}/credential"}}

PLACEMENT = {"placement_database": {"connection": database("placement")}, "keystone_authtoken": AUTH,
             "api": {"auth_strategy": "keystone"}}

GLANCE = {"DEFAULT": {"bind_host": IP, "enabled_backends": "file:file", "workers": 0},
          "glance_store": {"default_backend": "file"},
          "file": {"filesystem_store_datadir": f"{INSIDE}/images"},
          "database": {"connection": database("glance")}, "keystone_authtoken": AUTH,
          "paste_deploy": {"flavor": "keystone",
                           "config_file": f"{CACHE}/glance/usr/share/glance-common/glance-api-paste.ini"}}

NOVA = {"DEFAULT": {"transport_url": f"rabbit://guest:guest@{IP}:5672/", "state_path": f"{INSIDE}/nova",
                    "my_ip": IP, "osapi_compute_workers": 1, "osapi_compute_listen": IP,
                    "shelved_offload_time": -1,  # when it is asked for
                    "instance_name_template": "g%x"},  # as the lab names its VMs
        "wsgi": {"api_paste_config": f"{CACHE}/nova/usr/share/nova-common/api-paste.ini"},
        "api": {"auth_strategy": "keystone"},
        "api_database": {"connection": database("nova_api")}, "database": {"connection": database("nova")},
        "keystone_authtoken": AUTH, "placement": AUTH,
        "service_user": AUTH,
        "glance": {"api_servers": f"http://{IP}:9292"},
        "neutron": {"endpoint_override": f"http://{IP}:9696", **AUTH},
        "oslo_concurrency": {"lock_path": f"{INSIDE}/locks"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1},
        "filter_scheduler": {"enabled_filters": "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,"
                                                "PciPassthroughFilter"},
        # root already: no sudo
        **{section: {"helper_command": "privsep-helper"}
           for section in ("nova_sys_admin", "vif_plug_linux_bridge_privileged", "privsep_osbrick")}}


def compute(host, ip, virt_type):
    """What nova.conf of a host has more than the others."""
    return {"DEFAULT": {"host": host, "my_ip": ip, "state_path": STATE, "instances_path": f"{STATE}/instances",
                        "compute_driver": "ibvmig_lab.LabDriver",
                        # never by itself: while an ibvmigd is stopped, the scheduler would refuse in our place
                        "update_resources_interval": -1,
                        "shutdown_timeout": 0},  # the lab's guests know no power button
            "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
            "libvirt": {"virt_type": virt_type, "cpu_mode": "host-passthrough" if virt_type == "kvm" else "none",
                        "hw_machine_type": "x86_64=q35", "num_pcie_ports": 12, "images_type": "qcow2",
                        "live_migration_scheme": "tcp", "live_migration_inbound_addr": ip,
                        "live_migration_with_native_tls": False, "live_migration_bandwidth": BANDWIDTH_MIB_S,
                        "mem_stats_period_seconds": 0},
            "vnc": {"enabled": False},
            # at a live migration's destination Nova would take the guest's kernel for a disk of a wrong format
            "workarounds": {"disable_deep_image_inspection": True},
            "pci": {"device_spec": json.dumps({"vendor_id": "ffff", "product_id": "ffff",
                                               "physical_network": "ib0net"}),
                    "report_in_placement": False},
            "ibvmig": {"endpoint": f"https://{ip}:{labconf.PEER_PORT}", "pf_by_physnet": "ib0net:pf0",
                       "cafile": f"{labconf.TLS_DIR}/ca.pem", "certfile": f"{labconf.TLS_DIR}/nova.pem",
                       "keyfile": f"{labconf.TLS_DIR}/nova.key", "confirm_timeout": 300,
                       "attach_timeout": 300}}


# One key: the hosts', and root's on each.
SSHD = f"""HostKey {INSIDE}/ssh/key
AuthorizedKeysFile {INSIDE}/ssh/key.pub
StrictModes no
PidFile none
Subsystem sftp internal-sftp
"""
SSH = f"""Host 10.77.0.*
IdentityFile {INSIDE}/ssh/key
GlobalKnownHostsFile {INSIDE}/ssh/known_hosts
UserKnownHostsFile none
"""
# /etc is the lab's own
SSH_SETUP = f"""
ssh-keygen -q -t ed25519 -N '' -f {INSIDE}/ssh/key
echo "10.77.0.* $(cat {INSIDE}/ssh/key.pub)" >{INSIDE}/ssh/known_hosts
cp {INSIDE}/ssh/config /etc/ssh/ssh_config.d/lab.conf
usermod -p '*' root
getent passwd sshd >/dev/null || useradd --system --no-create-home --home-dir /run/sshd sshd
mkdir -p /run/sshd
"""


def ini(sections):
    return "".join(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for name, keys in sections.items())


def entry(module, name, *args):
    """A command of OpenStack's, without the packages that would bring it as a service."""
    code = f"import sys; sys.argv[0] = {name!r}; from {module} import main; sys.exit(main())"
    return [PYTHON, "-c", code, *args]


class StandIn:
    """In place of Neutron: openstack/check/neutron.py. ml2.NeutronServer is Neutron itself."""
    name = "neutron's stand-in"

    def __init__(self, cloud):
        self.cloud = cloud

    def write_files(self):
        """It has none."""

    def sync(self):
        """It has no database."""

    def start(self):
        self.cloud.service("neutron", "sm", [PYTHON, HERE / "neutron.py", IP, PORTS["neutron"]])

    def fill(self):
        """It has its networks."""


class Cloud:
    """lab: labtest.Lab, up; hosts: those that get a nova-compute; neutron: a class, StandIn or one like it."""

    def __init__(self, lab, hosts, neutron):
        self.lab, self.hosts = lab, hosts
        self.dir = lab.dir / "openstack"
        self.neutron = neutron(self)

    # -- files

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_files(self):
        self.remove()
        self.write("keystone.conf", ini(KEYSTONE))
        self.write("placement/placement.conf", ini(PLACEMENT))
        self.write("glance.conf", ini(GLANCE))
        self.write("nova.conf", ini(NOVA))
        self.write("databases.sql", "".join(f"CREATE DATABASE {d} CHARACTER SET utf8;\n" for d in DATABASES))
        self.write("ssh/sshd_config", SSHD)
        self.write("ssh/config", SSH)
        self.write("rabbitmq.conf", f"loopback_users = none\nlisteners.tcp.1 = {IP}:5672\n")
        kvm = labconf.lab_env()["LAB_ACCEL"] == "kvm"
        for number, host in enumerate(self.hosts):
            self.write(f"{host}/nova.conf", ini(compute(host, labconf.host_ip(number), "kvm" if kvm else "qemu")))
        for name in ("fernet", "credential", "images", "locks", "mysql", "rabbitmq", "breaks"):
            (self.dir / name).mkdir(exist_ok=True)
        self.make_site()
        self.neutron.write_files()

    def remove(self):
        """Databases, images and all else; what the services have logged stays with the lab."""
        shutil.rmtree(self.dir, ignore_errors=True)

    def make_site(self):
        """Nova with our driver beside its own, as links."""
        site = self.dir / "site"
        shutil.copytree("/usr/lib/python3/dist-packages/nova", site / "nova", copy_function=os.symlink,
                        ignore=shutil.ignore_patterns("tests", "__pycache__"))
        (site / "nova/virt/ibvmig").symlink_to(TOP / "openstack/nova/virt/ibvmig")
        (site / "nova/virt/ibvmig_lab.py").symlink_to(HERE / "ibvmig_lab.py")
        (site / "nova_ibvmig").symlink_to(TOP / "openstack/nova_ibvmig")

    # -- services

    def service(self, name, node, argv, env=None):
        spec = {"node": node, "argv": [str(a) for a in argv], "cwd": "/", "log": f"log/{name}@{node}.log",
                "env": {"LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1",
                        **(env or {})}}
        (self.lab.dir / "services" / f"{name}@{node}.json").write_text(json.dumps(spec))
        self.lab.lab("service", "start", f"{name}@{node}")

    def listens(self, name):
        if not self.lab.is_up:
            raise Failure(f"{name} is waited for, but the lab has ended")
        code = f"import socket; socket.create_connection(({IP!r}, {PORTS[name]}), 2)"
        return self.lab.sh("sm", PYTHON, "-c", code, check=False).returncode == 0

    def serve(self, name, argv, env=None):
        self.service(name, "sm", argv, env)
        wait_for(f"{name}, see log/{name}@sm.log", START_S, lambda: self.listens(name), 0.5)

    def as_client(self, *argv):
        """The program with what it needs to know of the cloud, for the control plane's node."""
        return ["env", *(f"{k}={v}" for k, v in CLIENT.items()), *map(str, argv)]

    def run(self, *argv, deadline_s=START_S, check=True):
        """A program on the control plane's node; its standard output."""
        return self.lab.sh("sm", *self.as_client(*argv), deadline_s=deadline_s, check=check).stdout

    def openstack(self, *args, deadline_s=START_S, check=True):
        return self.run("openstack", *args, deadline_s=deadline_s, check=check)

    def show(self, *args):
        return json.loads(self.openstack(*args, "-f", "json"))

    # -- start

    def start_mariadb(self):
        """Without its own tables, so everybody is let in: nobody else reaches the lab's network."""
        data = f"{INSIDE}/mysql"
        self.serve("mariadb", ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--bind-address={IP}",
                               f"--socket={data}/sock", f"--pid-file={data}/pid", "--skip-grant-tables",
                               f"--init-file={INSIDE}/databases.sql", "--innodb-buffer-pool-size=64M",
                               "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--performance-schema=OFF"])

    def start_rabbitmq(self):
        data = f"{INSIDE}/rabbitmq"
        self.serve("rabbitmq", ["/usr/lib/rabbitmq/bin/rabbitmq-server"],
                   {"RABBITMQ_NODENAME": "rabbit@localhost", "RABBITMQ_MNESIA_BASE": data, "RABBITMQ_LOG_BASE": data,
                    "RABBITMQ_CONFIG_FILE": f"{INSIDE}/rabbitmq.conf", "HOME": data,
                    "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/plugins",
                    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"})

    def start_keystone(self):
        manage = entry("keystone.cmd.manage", "keystone-manage", "--config-file", f"{INSIDE}/keystone.conf")
        root = ["--keystone-user", "root", "--keystone-group", "root"]
        self.run(*manage, "db_sync")
        self.run(*manage, "fernet_setup", *root)
        self.run(*manage, "credential_setup", *root)
        url = CLIENT["OS_AUTH_URL"]
        self.run(*manage, "bootstrap", "--bootstrap-password", "secret", "--bootstrap-public-url", url,
                 "--bootstrap-internal-url", url, "--bootstrap-admin-url", url, "--bootstrap-region-id", "RegionOne")
        self.serve("keystone", [PYTHON, HERE / "wsgi.py", "keystone", IP, PORTS["keystone"]],
                   {"OS_KEYSTONE_CONFIG_FILES": f"{INSIDE}/keystone.conf"})

    def sync_placement(self):
        self.run(*entry("placement.cmd.manage", "placement-manage", "--config-dir", f"{INSIDE}/placement"), "db",
                 "sync")

    def sync_glance(self):
        self.run(*entry("glance.cmd.manage", "glance-manage", "--config-file", f"{INSIDE}/glance.conf"), "db_sync")

    def sync_nova(self):
        manage = entry("nova.cmd.manage", "nova-manage", "--config-file", f"{INSIDE}/nova.conf")
        self.run(*manage, "api_db", "sync")
        self.run(*manage, "cell_v2", "map_cell0", "--database_connection", database("nova_cell0"))
        self.run(*manage, "db", "sync")
        self.run(*manage, "cell_v2", "create_cell", "--name", "cell1")

    def start_apis(self):
        self.run(PYTHON, HERE / "catalog.py", IP)
        self.neutron.start()
        self.service("placement", "sm", [PYTHON, HERE / "wsgi.py", "placement", IP, PORTS["placement"]],
                     {"OS_PLACEMENT_CONFIG_DIR": f"{INSIDE}/placement"})
        self.service("glance", "sm", entry("glance.cmd.api", "glance-api", "--config-file", f"{INSIDE}/glance.conf"))
        self.nova("nova-api", "nova.cmd.api_os_compute")
        for name in ("conductor", "scheduler"):
            self.nova(f"nova-{name}", f"nova.cmd.{name}")
        for name in ("neutron", "placement", "glance", "nova-api"):
            wait_for(f"{name}, see log/{name}@sm.log", START_S, lambda name=name: self.listens(name), 0.5)
        self.neutron.fill()

    def nova(self, name, module, node="sm", *more):
        self.service(name, node, entry(module, name, "--config-file", f"{INSIDE}/nova.conf", *more),
                     {"PYTHONPATH": f"{INSIDE}/site"})

    def start_ssh(self):
        """Between the hosts, by which Nova carries disks in a cold migration."""
        self.lab.sh("sm", "sh", "-ec", SSH_SETUP)
        for number, host in enumerate(self.hosts):
            self.service("sshd", host, [CACHE / "sshd/usr/sbin/sshd", "-D", "-e", "-f", f"{INSIDE}/ssh/sshd_config",
                                        "-o", f"ListenAddress={labconf.host_ip(number)}"])

    def start_computes(self):
        self.lab.sh("sm", TOP / "hooks/ibvmig-certs", "-d", labconf.TLS_DIR, "cert", "nova", IP)
        self.start_ssh()
        for host in self.hosts:
            self.lab.sh(host, "mkdir", "-p", f"{STATE}/instances")
            self.nova("nova-compute", "nova.cmd.compute", host, "--config-file", f"{INSIDE}/{host}/nova.conf")
        wait_for("Nova knows the hosts, see log/nova-compute@*.log", START_S, self.hosts_known, 1)

    def hosts_known(self):
        """A host that has told of its resources is only used once it is mapped to the cell."""
        self.run(*entry("nova.cmd.manage", "nova-manage", "--config-file", f"{INSIDE}/nova.conf"), "cell_v2",
                 "discover_hosts")
        return sum(h["State"] == "up" for h in self.show("hypervisor", "list")) == len(self.hosts)

    def look_anew(self, host):
        """nova-compute looks what its host has, as it does each minute where update_resources_interval is not -1. Until
        then it takes a server that has come by a move for none of its own, and leaves the PCI devices claimed of one
        that is offloaded. What is asked of it meanwhile waits until it has looked."""
        for action in ("stop", "start"):
            self.lab.lab("service", action, f"nova-compute@{host}")

    def start(self, said):
        """said(text) is called with each thing that is there. The lab must have been started with DAEMON_CONF."""
        self.write_files()
        with ThreadPoolExecutor() as pool:
            rabbit = pool.submit(self.start_rabbitmq)
            self.start_mariadb()
            said("MariaDB answers")
            jobs = [pool.submit(f) for f in (self.start_keystone, self.sync_placement, self.sync_glance,
                                             self.sync_nova, self.neutron.sync)]
            for job in [rabbit, *jobs]:
                job.result()
        said("RabbitMQ, keystone and all databases are there")
        self.start_apis()
        said(f"placement, glance, {self.neutron.name} and nova-api answer")
        self.start_computes()
        said(f"nova-compute runs on {' and '.join(self.hosts)}")


DAEMON_CONF = "role = nova nova"
__all__ = ["BUILD", "Cloud", "DAEMON_CONF", "Failure", "TOP", "wait_for"]
