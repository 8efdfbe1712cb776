"""Boxes and racks of NVIDIA, AMD, Intel and AWS, alone or several on one fabric, and slices of Google's TPUs.

Figures, their sources and assumptions are in the files of `box_files`, one for each function.
"""

from ..network.topology import Topology
from .box_files import stored_box, stored_slice
from .scale_out import repeat_box


def dgx_a100(boxes: int = 1) -> Topology:
    """DGX A100: 8 GPUs on an NVSwitch of 300 GB/s per GPU, one 200 Gb/s NIC per GPU.

    This NVSwitch has neither in-network multicast nor reduction.

    Parameters
    ----------
    boxes : int
        How many boxes, or racks, share one fabric, 1 to 131072.  A single one has neither NICs nor fabric.

    Returns
    -------
    Topology
        ``box0/gpu0`` ... , the switches of each box, and with several boxes ``box0/nic0`` ... and ``ib``.
    """
    return repeat_box(stored_box("dgx-a100"), boxes)


def dgx_h100(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """DGX H100: 8 GPUs on an NVSwitch of 450 GB/s per GPU with multicast and reduction, one 400 Gb/s NIC per GPU.

    The third-generation NVSwitch has NVLink SHARP, so it can multicast and aggregate; the InfiniBand fabric cannot.
    Parameters as for `dgx_a100`.  With `loopback`, NVLink SHARP also reads and writes the own part of the GPU in
    question through the switch, as the hardware does; see `SwitchLimits`.
    """
    return repeat_box(stored_box("dgx-h100", loopback=loopback), boxes)


def hgx_h20(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """HGX H20: 8 GPUs on an NVSwitch of 450 GB/s per GPU, one 400 Gb/s NIC per GPU, as two owners have them.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("hgx-h20", loopback=loopback), boxes)


def dgx_h200(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """DGX H200: 8 GPUs on an NVSwitch of 450 GB/s per GPU, one 400 Gb/s NIC per GPU, as in DGX H100.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("dgx-h200", loopback=loopback), boxes)


def dgx_b200(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """DGX B200: 8 GPUs on an NVSwitch of 900 GB/s per GPU with NVLink SHARP, one 400 Gb/s NIC per GPU.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("dgx-b200", loopback=loopback), boxes)


def dgx_b300(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """DGX B300: 8 GPUs on an NVSwitch of 900 GB/s per GPU with NVLink SHARP, one 800 Gb/s NIC per GPU.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("dgx-b300", loopback=loopback), boxes)


def gb200_nvl72(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """GB200 NVL72: racks of 72 GPUs on NVSwitches of 900 GB/s per GPU, one 400 Gb/s NIC per GPU.

    The 18 NVSwitches of a rack are one, with NVLink SHARP among all 72 GPUs.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("gb200-nvl72", loopback=loopback), boxes)


def gb300_nvl72(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """GB300 NVL72: racks of 72 GPUs on NVSwitches of 900 GB/s per GPU, one 800 Gb/s NIC per GPU.

    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("gb300-nvl72", loopback=loopback), boxes)


def nvl576(boxes: int = 1, *, loopback: bool = True) -> Topology:
    """NVL576: 576 GPU dies on one NVSwitch network of 1300 GB/s per die, as announced for Rubin Ultra in 2025.

    Assumed: that every die is a rank, that the network is non-blocking, and that NVLink SHARP spans all of it.
    Parameters as for `dgx_h100`.
    """
    return repeat_box(stored_box("nvl576", loopback=loopback), boxes)


def dgx1_v100(boxes: int = 1) -> Topology:
    """DGX-1 V100: 8 GPUs in a hybrid cube mesh of NVLinks of 25 GB/s, one 100 Gb/s NIC per two GPUs.

    GPUs 2i and 2i+1 share a PCIe switch and the NIC on it: each can fill it, both together cannot exceed it.
    """
    return repeat_box(stored_box("dgx1-v100"), boxes)


def mi250(boxes: int = 1) -> Topology:
    """MI250 box: 16 GCDs with seven 50 GB/s Infinity Fabric links each, one NIC of 32 GB/s per package.

    Ranks are GCDs, of which 2i and 2i+1 are one package.
    """
    return repeat_box(stored_box("mi250"), boxes)


def mi300x(boxes: int = 1) -> Topology:
    """MI300X box: 8 GPUs, each pair joined by an xGMI link of 64 GB/s, one 400 Gb/s NIC per GPU."""
    return repeat_box(stored_box("mi300x"), boxes)


def mi325x(boxes: int = 1) -> Topology:
    """MI325X box: 8 GPUs, each pair joined by an xGMI link of 64 GB/s, one 400 Gb/s NIC per GPU, as in MI300X."""
    return repeat_box(stored_box("mi325x"), boxes)


def mi355x(boxes: int = 1) -> Topology:
    """MI355X box: 8 GPUs, each pair joined by an xGMI link of 76.8 GB/s, one 400 Gb/s NIC per GPU."""
    return repeat_box(stored_box("mi355x"), boxes)


def mi300a(boxes: int = 1) -> Topology:
    """MI300A node: 4 APUs, each pair joined by two xGMI links of 64 GB/s, and assumed one 200 Gb/s NIC per APU."""
    return repeat_box(stored_box("mi300a"), boxes)


def l40s(boxes: int = 1) -> Topology:
    """Server with 8 L40S on PCIe 4.0, modeled as one switch, and assumed one 200 Gb/s NIC for every two GPUs."""
    return repeat_box(stored_box("l40s"), boxes)


def rtx_pro_6000(boxes: int = 1) -> Topology:
    """Server with 8 RTX PRO 6000 on PCIe 5.0, modeled as one switch, and assumed one 400 Gb/s NIC per GPU."""
    return repeat_box(stored_box("rtx-pro-6000"), boxes)


def helios(boxes: int = 1) -> Topology:
    """Helios: racks of 72 MI400-series GPUs on switches of 1800 GB/s per GPU, NICs of 300 GB/s per GPU, as announced.

    The scale-up switches are one, ``box0/switch``, which neither multicasts nor aggregates; the three NICs of a GPU are
    one.
    """
    return repeat_box(stored_box("helios"), boxes)


def gaudi3(boxes: int = 1) -> Topology:
    """Gaudi 3 box: 8 accelerators, each pair joined by 75 GB/s of Ethernet, 75 GB/s to the network each."""
    return repeat_box(stored_box("gaudi3"), boxes)


def trn2(boxes: int = 1) -> Topology:
    """Trn2 instance: a 4 x 4 torus of Trainium2 chips with links of 128 GB/s, 25 GB/s of EFA per chip."""
    return repeat_box(stored_box("trn2"), boxes)


def trn2_ultraserver(boxes: int = 1) -> Topology:
    """Trn2 UltraServer: four Trn2 instances, and rings of 64 GB/s between chips of equal coordinates."""
    return repeat_box(stored_box("trn2-ultraserver"), boxes)


def trn3_ultraserver(boxes: int = 1) -> Topology:
    """Trn3 UltraServer: 144 Trainium3 chips on NeuronSwitches of 1280 GB/s per chip, and assumed 25 GB/s of EFA."""
    return repeat_box(stored_box("trn3-ultraserver"), boxes)


def tpu_v4(*shape: int, twisted: bool = False) -> Topology:
    """Slice of TPU v4: a 3D torus of up to 4096 chips with six links of 50 GB/s each.

    Parameters
    ----------
    *shape : int
        Chips along each dimension.  TPU v4 and v5p have three, such as 4, 4, 8, which close into rings where all are
        multiples of 4, as slices consist of cubes of 4 x 4 x 4 then; smaller slices are meshes.  v5e and v6e have two,
        such as 8, 16, and a dimension closes into a ring where it has all 16 chips.
    twisted : bool
        Shift the links that close the shorter dimensions, k, along the longer ones, 2 k, as in `twisted_torus`.

    Examples
    --------
    >>> tpu_v4(4, 4, 8, twisted=True)
    <Topology 'tpu-v4-4x4x8-twisted': 128 ranks, 768 links>
    """
    return stored_slice("tpu-v4", shape, twisted=twisted)


def tpu_v5p(*shape: int, twisted: bool = False) -> Topology:
    """Slice of TPU v5p: a 3D torus of up to 8960 chips with six links of 100 GB/s each.

    Parameters as for `tpu_v4`.
    """
    return stored_slice("tpu-v5p", shape, twisted=twisted)


def tpu_v5e(*shape: int) -> Topology:
    """Slice of TPU v5e: up to 16 x 16 chips with four links of 50 GB/s each."""
    return stored_slice("tpu-v5e", shape)


def tpu_v6e(*shape: int) -> Topology:
    """Slice of TPU v6e (Trillium): up to 16 x 16 chips with four links of 100 GB/s each."""
    return stored_slice("tpu-v6e", shape)
