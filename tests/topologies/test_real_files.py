"""Files of tools and other planners: each becomes a network to plan on, or is refused with the true reason."""

from __future__ import annotations

from typing import Any

import pytest

import collopt
from collopt.errors import FileFormatError
from collopt.topologies import mi250
from sample_files import sample

READ: dict[str, tuple[dict[str, Any], int]] = {
    "amd-smi-topology_2gpu-pcie.txt": ({"pcie_bandwidth": 31.5}, 2),
    "amd-smi-topology_mi300x.txt": ({}, 8),
    "amd-sysfs-xgmi_num_links_frontier-8gcd.txt": ({"gpu": "mi250"}, 8),
    "astrasim-net_hgx-h100-validated.yml": ({}, 8),
    "astrasim-net_hgx_h100_16gpu.yml": ({}, 16),
    "astrasim-net_tpu_v3_32_2dtorus.yml": ({}, 32),
    "nccl-topo-dump_h100-8gpu-8nic-vm.xml": ({"boxes": 2, "fabric": "rail"}, 16),
    "nccl-topo_aws-p4d-a100.xml": ({"gpu": "a100"}, 8),
    "nccl-topo_azure-ncv4-a100pcie.xml": ({}, 4),
    "nccl-topo_azure-ndv2-v100.xml": ({"gpu": "v100"}, 8),
    "nccl-topo_azure-ndv4-a100.xml": ({"gpu": "a100"}, 8),
    "nccl-topo_azure-ndv5-h100.xml": ({"gpu": "h100", "boxes": 2, "fabric": "full", "nic_bandwidth": 50}, 16),
    "nvidia-smi-topo_2gpu-phb-tabs.txt": ({"pcie_bandwidth": 12}, 2),
    "nvidia-smi-topo_a100-8gpu-8nic.txt": ({"gpu": "a100", "boxes": 2, "fabric": "full", "nic_bandwidth": 25}, 16),
    "nvidia-smi-topo_v100-hybrid-cube-mesh.txt": ({"gpu": "v100"}, 8),
    "rccl-topo_3gpu-pcie.xml": ({}, 3),
    "rccl-topo_mi100-4gpu.xml": ({}, 4),
    "rccl-topo_mi100-8gpu-hypercube.xml": ({}, 8),
    "rccl-topo_mi250x-16gcd-8nic.xml": ({}, 16),
    "rccl-topo_mi300x-8gpu-8nic.xml": ({}, 8),
    "rocm-smi-shownodesbw_mi250x-8gcd.txt": ({}, 8),
    "rocm-smi-showtopo_8gpu-two-hives.txt": ({"gpu": "mi100", "pcie_bandwidth": 25}, 8),
    "taccl-topo_dgx2-1MB.json": ({"boxes": 2, "fabric": "full"}, 32),
    "taccl-topo_ndv2-1MB.json": ({}, 8),
    "teccl-input_mesh6.json": ({}, 36),
    "teccl-input_ndv2.json": ({}, 16),
}
"""What has to be added to each file, and the ranks of the network."""

REFUSED = {
    "astrasim-htsim_8nodes.topo": "a topology of htsim",
    "astrasim-ns3-logical_8nodes_1D.json": "a logical topology of ASTRA-sim",
    "astrasim-system_custom_collective.json": "a system description of ASTRA-sim",
    "chakra_ring_allreduce_8npus.0.et": "is not UTF-8 text",
    "msccl_ring_allreduce_8npus.xml": "an MSCCL schedule, not a network",
    "nccl-graph_azure-ncv4.xml": "a result of NCCL's search",
    "nccl-topo_aws-g5.xml": "the file names no GPU",
    "nccl-topo_azure-ndv5-h100.xml": "the file lists PCIe only, as files of cloud providers do",
    "nccl_tuner_example.conf": "a tuner table of NCCL",
    "nvidia-smi-topo_a100-8gpu-8nic.txt": "it counts NVLinks but does not state their speed",
    "rocm-smi-showtopo_8gpu-two-hives.txt": "it states neither the speed of xGMI links",
    "taccl-sketch_dgx2-n2.json": "a TACCL sketch",
    "teccl-schedule_mesh4.json": "a schedule of TE-CCL",
}


@pytest.mark.parametrize("name", READ)
def test_a_network_comes_of_it_on_which_an_allgather_meets_its_bound(name: str) -> None:
    """Real files of every tool give networks to plan on."""
    options, ranks = READ[name]
    network = collopt.read_topology(sample(name), **options)
    assert network.num_ranks == ranks
    if ranks <= 16 and all(network.ingress(switch) == network.egress(switch) for switch in network.switch_nodes):
        assert collopt.plan(network, "allgather").gap == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_describes_no_network_is_called_what_it_is(name: str) -> None:
    """The message names the file and what it holds."""
    with pytest.raises(FileFormatError) as caught:
        collopt.read_topology(sample(name))
    assert name in str(caught.value)
    assert REFUSED[name] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_dump_of_an_mi250_box_is_the_box_of_the_catalogue() -> None:
    """Link for link, and it is that on which ForestColl was measured."""
    network = collopt.read_topology(sample("rccl-topo_mi250x-16gcd-8nic.xml"))
    assert sorted(link[:3] for link in network.links) == sorted(link[:3] for link in mi250().links)
