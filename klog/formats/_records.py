"""What `record_fields` gives out. Made by `python -m klog.formats.derive`: do not edit."""

# fmt: off
# mypy: ignore-errors
from collections.abc import Callable
from struct import Struct, pack, unpack_from

from klog.formats.record_functions import (
    ABSENT,
    REFUSALS,
    misfit,
    read_uvarint as uvarint,
    refusal,
    tagged,
    tagged_fields,
    too_long,
    uuid_bytes,
    uuid_text,
)
from klog.formats.varints import uvarint as write_uvarint

_pack_16s = Struct(">16s").pack
_pack_b = Struct(">b").pack
_pack_bi = Struct(">bi").pack
_pack_h = Struct(">h").pack
_pack_hh = Struct(">hh").pack
_pack_hi = Struct(">hi").pack
_pack_hiib = Struct(">hiib").pack
_pack_hix = Struct(">hix").pack
_pack_hqh = Struct(">hqh").pack
_pack_hqhib = Struct(">hqhib").pack
_pack_hqhibi = Struct(">hqhibi").pack
_pack_hqi = Struct(">hqi").pack
_pack_hqih = Struct(">hqih").pack
_pack_i = Struct(">i").pack
_pack_ih = Struct(">ih").pack
_pack_ii = Struct(">ii").pack
_pack_iii = Struct(">iii").pack
_pack_q = Struct(">q").pack
_pack_qi = Struct(">qi").pack
_pack_qq = Struct(">qq").pack
_pack_qqx = Struct(">qqx").pack
_unpack_16s = Struct(">16s").unpack_from
_unpack_b = Struct(">b").unpack_from
_unpack_h = Struct(">h").unpack_from
_unpack_i = Struct(">i").unpack_from
_unpack_ih = Struct(">ih").unpack_from
_unpack_ii = Struct(">ii").unpack_from
_unpack_iib = Struct(">iib").unpack_from
_unpack_iii = Struct(">iii").unpack_from
_unpack_q = Struct(">q").unpack_from
_unpack_qh = Struct(">qh").unpack_from
_unpack_qhib = Struct(">qhib").unpack_from
_unpack_qhibi = Struct(">qhibi").unpack_from
_unpack_qi = Struct(">qi").unpack_from
_unpack_qih = Struct(">qih").unpack_from
_unpack_qq = Struct(">qq").unpack_from


def read_GroupKey_0(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, = _unpack_h(b, p)
        p += 2
        v6 = p + v4
        if v4 < 0 or v6 > length:
            raise misfit(v4, "bytes", p)
        v5 = b[p:v6].decode("utf-8", "surrogatepass")
        p = v6
        v7, = _unpack_i(b, p)
        p += 4
        return {'group': v2, 'topic': v5, 'partition': v7}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupKey_2(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        return {'group': v2}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupKey_3(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        return {'groupId': v2}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupKey_5(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, = _unpack_h(b, p)
        p += 2
        v6 = p + v4
        if v4 < 0 or v6 > length:
            raise misfit(v4, "bytes", p)
        v5 = b[p:v6].decode("utf-8", "surrogatepass")
        p = v6
        return {'groupId': v2, 'memberId': v5}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupKey_16(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, = _unpack_h(b, p)
        p += 2
        v6 = p + v4
        if v4 < 0 or v6 > length:
            raise misfit(v4, "bytes", p)
        v5 = b[p:v6].decode("utf-8", "surrogatepass")
        p = v6
        return {'groupId': v2, 'regularExpression': v5}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_OffsetCommitValue_0(b, p):
    try:
        length = len(b)
        v1, v2, = _unpack_qh(b, p)
        p += 10
        v4 = p + v2
        if v2 < 0 or v4 > length:
            raise misfit(v2, "bytes", p)
        v3 = b[p:v4].decode("utf-8", "surrogatepass")
        p = v4
        v5, = _unpack_q(b, p)
        p += 8
        return {'offset': v1, 'metadata': v3, 'commitTimestamp': v5}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_OffsetCommitValue_1(b, p):
    try:
        length = len(b)
        v1, v2, = _unpack_qh(b, p)
        p += 10
        v4 = p + v2
        if v2 < 0 or v4 > length:
            raise misfit(v2, "bytes", p)
        v3 = b[p:v4].decode("utf-8", "surrogatepass")
        p = v4
        v5, v6, = _unpack_qq(b, p)
        p += 16
        return {'offset': v1, 'metadata': v3, 'commitTimestamp': v5, 'expireTimestamp': v6}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_OffsetCommitValue_3(b, p):
    try:
        length = len(b)
        v1, v2, v3, = _unpack_qih(b, p)
        p += 14
        v5 = p + v3
        if v3 < 0 or v5 > length:
            raise misfit(v3, "bytes", p)
        v4 = b[p:v5].decode("utf-8", "surrogatepass")
        p = v5
        v6, = _unpack_q(b, p)
        p += 8
        return {'offset': v1, 'leaderEpoch': v2, 'metadata': v4, 'commitTimestamp': v6}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_OffsetCommitValue_4_topicId(b, p):
    try:
        length = len(b)
        v8, = _unpack_16s(b, p)
        p += 16
        return uuid_text(v8), p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_OffsetCommitValue_4(b, p):
    try:
        length = len(b)
        v1, v2, = _unpack_qi(b, p)
        p += 12
        v3 = b[p]
        p += 1
        if v3 > 0x7F:
            v3, p = uvarint(b, p - 1, 32)
        v3 -= 1
        v5 = p + v3
        if v3 < 0 or v5 > length:
            raise misfit(v3, "bytes", p)
        v4 = b[p:v5].decode("utf-8", "surrogatepass")
        p = v5
        v6, = _unpack_q(b, p)
        p += 8
        v7 = {'offset': v1, 'leaderEpoch': v2, 'metadata': v4, 'commitTimestamp': v6}
        if b[p]:
            p = tagged(b, p, v7, {0: ("topicId", read_OffsetCommitValue_4_topicId)})
        else:
            p += 1
        return v7, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupMetadataValue_0(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, v5, = _unpack_ih(b, p)
        p += 6
        v6 = None
        if v5 >= 0:
            v7 = p + v5
            if v7 > length:
                raise misfit(v5, "bytes", p)
            v6 = b[p:v7].decode("utf-8", "surrogatepass")
            p = v7
        v8, = _unpack_h(b, p)
        p += 2
        v9 = None
        if v8 >= 0:
            v10 = p + v8
            if v10 > length:
                raise misfit(v8, "bytes", p)
            v9 = b[p:v10].decode("utf-8", "surrogatepass")
            p = v10
        v11, = _unpack_i(b, p)
        p += 4
        if v11 < 0 or v11 > length - p:
            raise misfit(v11, "items", p)
        v12 = []
        for _ in range(v11):
            v13, = _unpack_h(b, p)
            p += 2
            v15 = p + v13
            if v13 < 0 or v15 > length:
                raise misfit(v13, "bytes", p)
            v14 = b[p:v15].decode("utf-8", "surrogatepass")
            p = v15
            v16, = _unpack_h(b, p)
            p += 2
            v18 = p + v16
            if v16 < 0 or v18 > length:
                raise misfit(v16, "bytes", p)
            v17 = b[p:v18].decode("utf-8", "surrogatepass")
            p = v18
            v19, = _unpack_h(b, p)
            p += 2
            v21 = p + v19
            if v19 < 0 or v21 > length:
                raise misfit(v19, "bytes", p)
            v20 = b[p:v21].decode("utf-8", "surrogatepass")
            p = v21
            v22, v23, = _unpack_ii(b, p)
            p += 8
            v25 = p + v23
            if v23 < 0 or v25 > length:
                raise misfit(v23, "bytes", p)
            v24 = b[p:v25]
            p = v25
            v26, = _unpack_i(b, p)
            p += 4
            v28 = p + v26
            if v26 < 0 or v28 > length:
                raise misfit(v26, "bytes", p)
            v27 = b[p:v28]
            p = v28
            v12.append({'memberId': v14, 'clientId': v17, 'clientHost': v20, 'sessionTimeout': v22, 'subscription': v24, 'assignment': v27})
        return {'protocolType': v2, 'generation': v4, 'protocol': v6, 'leader': v9, 'members': v12}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupMetadataValue_1(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, v5, = _unpack_ih(b, p)
        p += 6
        v6 = None
        if v5 >= 0:
            v7 = p + v5
            if v7 > length:
                raise misfit(v5, "bytes", p)
            v6 = b[p:v7].decode("utf-8", "surrogatepass")
            p = v7
        v8, = _unpack_h(b, p)
        p += 2
        v9 = None
        if v8 >= 0:
            v10 = p + v8
            if v10 > length:
                raise misfit(v8, "bytes", p)
            v9 = b[p:v10].decode("utf-8", "surrogatepass")
            p = v10
        v11, = _unpack_i(b, p)
        p += 4
        if v11 < 0 or v11 > length - p:
            raise misfit(v11, "items", p)
        v12 = []
        for _ in range(v11):
            v13, = _unpack_h(b, p)
            p += 2
            v15 = p + v13
            if v13 < 0 or v15 > length:
                raise misfit(v13, "bytes", p)
            v14 = b[p:v15].decode("utf-8", "surrogatepass")
            p = v15
            v16, = _unpack_h(b, p)
            p += 2
            v18 = p + v16
            if v16 < 0 or v18 > length:
                raise misfit(v16, "bytes", p)
            v17 = b[p:v18].decode("utf-8", "surrogatepass")
            p = v18
            v19, = _unpack_h(b, p)
            p += 2
            v21 = p + v19
            if v19 < 0 or v21 > length:
                raise misfit(v19, "bytes", p)
            v20 = b[p:v21].decode("utf-8", "surrogatepass")
            p = v21
            v22, v23, v24, = _unpack_iii(b, p)
            p += 12
            v26 = p + v24
            if v24 < 0 or v26 > length:
                raise misfit(v24, "bytes", p)
            v25 = b[p:v26]
            p = v26
            v27, = _unpack_i(b, p)
            p += 4
            v29 = p + v27
            if v27 < 0 or v29 > length:
                raise misfit(v27, "bytes", p)
            v28 = b[p:v29]
            p = v29
            v12.append({'memberId': v14, 'clientId': v17, 'clientHost': v20, 'rebalanceTimeout': v22, 'sessionTimeout': v23, 'subscription': v25, 'assignment': v28})
        return {'protocolType': v2, 'generation': v4, 'protocol': v6, 'leader': v9, 'members': v12}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupMetadataValue_2(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, v5, = _unpack_ih(b, p)
        p += 6
        v6 = None
        if v5 >= 0:
            v7 = p + v5
            if v7 > length:
                raise misfit(v5, "bytes", p)
            v6 = b[p:v7].decode("utf-8", "surrogatepass")
            p = v7
        v8, = _unpack_h(b, p)
        p += 2
        v9 = None
        if v8 >= 0:
            v10 = p + v8
            if v10 > length:
                raise misfit(v8, "bytes", p)
            v9 = b[p:v10].decode("utf-8", "surrogatepass")
            p = v10
        v11, v12, = _unpack_qi(b, p)
        p += 12
        if v12 < 0 or v12 > length - p:
            raise misfit(v12, "items", p)
        v13 = []
        for _ in range(v12):
            v14, = _unpack_h(b, p)
            p += 2
            v16 = p + v14
            if v14 < 0 or v16 > length:
                raise misfit(v14, "bytes", p)
            v15 = b[p:v16].decode("utf-8", "surrogatepass")
            p = v16
            v17, = _unpack_h(b, p)
            p += 2
            v19 = p + v17
            if v17 < 0 or v19 > length:
                raise misfit(v17, "bytes", p)
            v18 = b[p:v19].decode("utf-8", "surrogatepass")
            p = v19
            v20, = _unpack_h(b, p)
            p += 2
            v22 = p + v20
            if v20 < 0 or v22 > length:
                raise misfit(v20, "bytes", p)
            v21 = b[p:v22].decode("utf-8", "surrogatepass")
            p = v22
            v23, v24, v25, = _unpack_iii(b, p)
            p += 12
            v27 = p + v25
            if v25 < 0 or v27 > length:
                raise misfit(v25, "bytes", p)
            v26 = b[p:v27]
            p = v27
            v28, = _unpack_i(b, p)
            p += 4
            v30 = p + v28
            if v28 < 0 or v30 > length:
                raise misfit(v28, "bytes", p)
            v29 = b[p:v30]
            p = v30
            v13.append({'memberId': v15, 'clientId': v18, 'clientHost': v21, 'rebalanceTimeout': v23, 'sessionTimeout': v24, 'subscription': v26, 'assignment': v29})
        return {'protocolType': v2, 'generation': v4, 'protocol': v6, 'leader': v9, 'currentStateTimestamp': v11, 'members': v13}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupMetadataValue_3(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, v5, = _unpack_ih(b, p)
        p += 6
        v6 = None
        if v5 >= 0:
            v7 = p + v5
            if v7 > length:
                raise misfit(v5, "bytes", p)
            v6 = b[p:v7].decode("utf-8", "surrogatepass")
            p = v7
        v8, = _unpack_h(b, p)
        p += 2
        v9 = None
        if v8 >= 0:
            v10 = p + v8
            if v10 > length:
                raise misfit(v8, "bytes", p)
            v9 = b[p:v10].decode("utf-8", "surrogatepass")
            p = v10
        v11, v12, = _unpack_qi(b, p)
        p += 12
        if v12 < 0 or v12 > length - p:
            raise misfit(v12, "items", p)
        v13 = []
        for _ in range(v12):
            v14, = _unpack_h(b, p)
            p += 2
            v16 = p + v14
            if v14 < 0 or v16 > length:
                raise misfit(v14, "bytes", p)
            v15 = b[p:v16].decode("utf-8", "surrogatepass")
            p = v16
            v17, = _unpack_h(b, p)
            p += 2
            v18 = None
            if v17 >= 0:
                v19 = p + v17
                if v19 > length:
                    raise misfit(v17, "bytes", p)
                v18 = b[p:v19].decode("utf-8", "surrogatepass")
                p = v19
            v20, = _unpack_h(b, p)
            p += 2
            v22 = p + v20
            if v20 < 0 or v22 > length:
                raise misfit(v20, "bytes", p)
            v21 = b[p:v22].decode("utf-8", "surrogatepass")
            p = v22
            v23, = _unpack_h(b, p)
            p += 2
            v25 = p + v23
            if v23 < 0 or v25 > length:
                raise misfit(v23, "bytes", p)
            v24 = b[p:v25].decode("utf-8", "surrogatepass")
            p = v25
            v26, v27, v28, = _unpack_iii(b, p)
            p += 12
            v30 = p + v28
            if v28 < 0 or v30 > length:
                raise misfit(v28, "bytes", p)
            v29 = b[p:v30]
            p = v30
            v31, = _unpack_i(b, p)
            p += 4
            v33 = p + v31
            if v31 < 0 or v33 > length:
                raise misfit(v31, "bytes", p)
            v32 = b[p:v33]
            p = v33
            v13.append({'memberId': v15, 'groupInstanceId': v18, 'clientId': v21, 'clientHost': v24, 'rebalanceTimeout': v26, 'sessionTimeout': v27, 'subscription': v29, 'assignment': v32})
        return {'protocolType': v2, 'generation': v4, 'protocol': v6, 'leader': v9, 'currentStateTimestamp': v11, 'members': v13}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_GroupMetadataValue_4(b, p):
    try:
        length = len(b)
        v1 = b[p]
        p += 1
        if v1 > 0x7F:
            v1, p = uvarint(b, p - 1, 32)
        v1 -= 1
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        v4, = _unpack_i(b, p)
        p += 4
        v5 = b[p]
        p += 1
        if v5 > 0x7F:
            v5, p = uvarint(b, p - 1, 32)
        v5 -= 1
        v6 = None
        if v5 >= 0:
            v7 = p + v5
            if v7 > length:
                raise misfit(v5, "bytes", p)
            v6 = b[p:v7].decode("utf-8", "surrogatepass")
            p = v7
        v8 = b[p]
        p += 1
        if v8 > 0x7F:
            v8, p = uvarint(b, p - 1, 32)
        v8 -= 1
        v9 = None
        if v8 >= 0:
            v10 = p + v8
            if v10 > length:
                raise misfit(v8, "bytes", p)
            v9 = b[p:v10].decode("utf-8", "surrogatepass")
            p = v10
        v11, = _unpack_q(b, p)
        p += 8
        v12 = b[p]
        p += 1
        if v12 > 0x7F:
            v12, p = uvarint(b, p - 1, 32)
        v12 -= 1
        if v12 < 0 or v12 > length - p:
            raise misfit(v12, "items", p)
        v13 = []
        for _ in range(v12):
            v14 = b[p]
            p += 1
            if v14 > 0x7F:
                v14, p = uvarint(b, p - 1, 32)
            v14 -= 1
            v16 = p + v14
            if v14 < 0 or v16 > length:
                raise misfit(v14, "bytes", p)
            v15 = b[p:v16].decode("utf-8", "surrogatepass")
            p = v16
            v17 = b[p]
            p += 1
            if v17 > 0x7F:
                v17, p = uvarint(b, p - 1, 32)
            v17 -= 1
            v18 = None
            if v17 >= 0:
                v19 = p + v17
                if v19 > length:
                    raise misfit(v17, "bytes", p)
                v18 = b[p:v19].decode("utf-8", "surrogatepass")
                p = v19
            v20 = b[p]
            p += 1
            if v20 > 0x7F:
                v20, p = uvarint(b, p - 1, 32)
            v20 -= 1
            v22 = p + v20
            if v20 < 0 or v22 > length:
                raise misfit(v20, "bytes", p)
            v21 = b[p:v22].decode("utf-8", "surrogatepass")
            p = v22
            v23 = b[p]
            p += 1
            if v23 > 0x7F:
                v23, p = uvarint(b, p - 1, 32)
            v23 -= 1
            v25 = p + v23
            if v23 < 0 or v25 > length:
                raise misfit(v23, "bytes", p)
            v24 = b[p:v25].decode("utf-8", "surrogatepass")
            p = v25
            v26, v27, = _unpack_ii(b, p)
            p += 8
            v28 = b[p]
            p += 1
            if v28 > 0x7F:
                v28, p = uvarint(b, p - 1, 32)
            v28 -= 1
            v30 = p + v28
            if v28 < 0 or v30 > length:
                raise misfit(v28, "bytes", p)
            v29 = b[p:v30]
            p = v30
            v31 = b[p]
            p += 1
            if v31 > 0x7F:
                v31, p = uvarint(b, p - 1, 32)
            v31 -= 1
            v33 = p + v31
            if v31 < 0 or v33 > length:
                raise misfit(v31, "bytes", p)
            v32 = b[p:v33]
            p = v33
            p = tagged(b, p, {}, {}) if b[p] else p + 1
            v13.append({'memberId': v15, 'groupInstanceId': v18, 'clientId': v21, 'clientHost': v24, 'rebalanceTimeout': v26, 'sessionTimeout': v27, 'subscription': v29, 'assignment': v32})
        p = tagged(b, p, {}, {}) if b[p] else p + 1
        return {'protocolType': v2, 'generation': v4, 'protocol': v6, 'leader': v9, 'currentStateTimestamp': v11, 'members': v13}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupMetadataValue_0_metadataHash(b, p):
    try:
        length = len(b)
        v3, = _unpack_q(b, p)
        p += 8
        return v3, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupMetadataValue_0(b, p):
    try:
        length = len(b)
        v1, = _unpack_i(b, p)
        p += 4
        v2 = {'epoch': v1}
        if b[p]:
            p = tagged(b, p, v2, {0: ("metadataHash", read_ConsumerGroupMetadataValue_0_metadataHash)})
        else:
            p += 1
        return v2, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupMemberMetadataValue_0_classicMemberMetadata(b, p):
    try:
        length = len(b)
        v26, = _unpack_b(b, p)
        p += 1
        v27 = None
        if v26 > 0:
            v28, = _unpack_i(b, p)
            p += 4
            v29 = b[p]
            p += 1
            if v29 > 0x7F:
                v29, p = uvarint(b, p - 1, 32)
            v29 -= 1
            if v29 < 0 or v29 > length - p:
                raise misfit(v29, "items", p)
            v30 = []
            for _ in range(v29):
                v31 = b[p]
                p += 1
                if v31 > 0x7F:
                    v31, p = uvarint(b, p - 1, 32)
                v31 -= 1
                v33 = p + v31
                if v31 < 0 or v33 > length:
                    raise misfit(v31, "bytes", p)
                v32 = b[p:v33].decode("utf-8", "surrogatepass")
                p = v33
                v34 = b[p]
                p += 1
                if v34 > 0x7F:
                    v34, p = uvarint(b, p - 1, 32)
                v34 -= 1
                v36 = p + v34
                if v34 < 0 or v36 > length:
                    raise misfit(v34, "bytes", p)
                v35 = b[p:v36]
                p = v36
                p = tagged(b, p, {}, {}) if b[p] else p + 1
                v30.append({'name': v32, 'metadata': v35})
            p = tagged(b, p, {}, {}) if b[p] else p + 1
            v27 = {'sessionTimeoutMs': v28, 'supportedProtocols': v30}
        return v27, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupMemberMetadataValue_0(b, p):
    try:
        length = len(b)
        v1 = b[p]
        p += 1
        if v1 > 0x7F:
            v1, p = uvarint(b, p - 1, 32)
        v1 -= 1
        v2 = None
        if v1 >= 0:
            v3 = p + v1
            if v3 > length:
                raise misfit(v1, "bytes", p)
            v2 = b[p:v3].decode("utf-8", "surrogatepass")
            p = v3
        v4 = b[p]
        p += 1
        if v4 > 0x7F:
            v4, p = uvarint(b, p - 1, 32)
        v4 -= 1
        v5 = None
        if v4 >= 0:
            v6 = p + v4
            if v6 > length:
                raise misfit(v4, "bytes", p)
            v5 = b[p:v6].decode("utf-8", "surrogatepass")
            p = v6
        v7 = b[p]
        p += 1
        if v7 > 0x7F:
            v7, p = uvarint(b, p - 1, 32)
        v7 -= 1
        v9 = p + v7
        if v7 < 0 or v9 > length:
            raise misfit(v7, "bytes", p)
        v8 = b[p:v9].decode("utf-8", "surrogatepass")
        p = v9
        v10 = b[p]
        p += 1
        if v10 > 0x7F:
            v10, p = uvarint(b, p - 1, 32)
        v10 -= 1
        v12 = p + v10
        if v10 < 0 or v12 > length:
            raise misfit(v10, "bytes", p)
        v11 = b[p:v12].decode("utf-8", "surrogatepass")
        p = v12
        v13 = b[p]
        p += 1
        if v13 > 0x7F:
            v13, p = uvarint(b, p - 1, 32)
        v13 -= 1
        if v13 < 0 or v13 > length - p:
            raise misfit(v13, "items", p)
        v14 = []
        for _ in range(v13):
            v15 = b[p]
            p += 1
            if v15 > 0x7F:
                v15, p = uvarint(b, p - 1, 32)
            v15 -= 1
            v17 = p + v15
            if v15 < 0 or v17 > length:
                raise misfit(v15, "bytes", p)
            v16 = b[p:v17].decode("utf-8", "surrogatepass")
            p = v17
            v14.append(v16)
        v18 = b[p]
        p += 1
        if v18 > 0x7F:
            v18, p = uvarint(b, p - 1, 32)
        v18 -= 1
        v19 = None
        if v18 >= 0:
            v20 = p + v18
            if v20 > length:
                raise misfit(v18, "bytes", p)
            v19 = b[p:v20].decode("utf-8", "surrogatepass")
            p = v20
        v21, = _unpack_i(b, p)
        p += 4
        v22 = b[p]
        p += 1
        if v22 > 0x7F:
            v22, p = uvarint(b, p - 1, 32)
        v22 -= 1
        v23 = None
        if v22 >= 0:
            v24 = p + v22
            if v24 > length:
                raise misfit(v22, "bytes", p)
            v23 = b[p:v24].decode("utf-8", "surrogatepass")
            p = v24
        v25 = {'instanceId': v2, 'rackId': v5, 'clientId': v8, 'clientHost': v11, 'subscribedTopicNames': v14, 'subscribedTopicRegex': v19, 'rebalanceTimeoutMs': v21, 'serverAssignor': v23}
        if b[p]:
            p = tagged(b, p, v25, {0: ("classicMemberMetadata", read_ConsumerGroupMemberMetadataValue_0_classicMemberMetadata)})
        else:
            p += 1
        return v25, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupTargetAssignmentMetadataValue_0(b, p):
    try:
        length = len(b)
        v1, = _unpack_i(b, p)
        p += 4
        p = tagged(b, p, {}, {}) if b[p] else p + 1
        return {'assignmentEpoch': v1}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupTargetAssignmentMemberValue_0(b, p):
    try:
        length = len(b)
        v1 = b[p]
        p += 1
        if v1 > 0x7F:
            v1, p = uvarint(b, p - 1, 32)
        v1 -= 1
        if v1 < 0 or v1 > length - p:
            raise misfit(v1, "items", p)
        v2 = []
        for _ in range(v1):
            v3, = _unpack_16s(b, p)
            p += 16
            v4 = b[p]
            p += 1
            if v4 > 0x7F:
                v4, p = uvarint(b, p - 1, 32)
            v4 -= 1
            if v4 < 0 or v4 > length - p:
                raise misfit(v4, "items", p)
            v5 = list(_unpack_i(b, p) if v4 == 1 else unpack_from(f">{v4}i", b, p))
            p += v4 * 4
            p = tagged(b, p, {}, {}) if b[p] else p + 1
            v2.append({'topicId': uuid_text(v3), 'partitions': v5})
        p = tagged(b, p, {}, {}) if b[p] else p + 1
        return {'topicPartitions': v2}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupCurrentMemberAssignmentValue_0(b, p):
    try:
        length = len(b)
        v1, v2, v3, = _unpack_iib(b, p)
        p += 9
        v4 = b[p]
        p += 1
        if v4 > 0x7F:
            v4, p = uvarint(b, p - 1, 32)
        v4 -= 1
        if v4 < 0 or v4 > length - p:
            raise misfit(v4, "items", p)
        v5 = []
        for _ in range(v4):
            v6, = _unpack_16s(b, p)
            p += 16
            v7 = b[p]
            p += 1
            if v7 > 0x7F:
                v7, p = uvarint(b, p - 1, 32)
            v7 -= 1
            if v7 < 0 or v7 > length - p:
                raise misfit(v7, "items", p)
            v8 = list(_unpack_i(b, p) if v7 == 1 else unpack_from(f">{v7}i", b, p))
            p += v7 * 4
            p = tagged(b, p, {}, {}) if b[p] else p + 1
            v5.append({'topicId': uuid_text(v6), 'partitions': v8})
        v9 = b[p]
        p += 1
        if v9 > 0x7F:
            v9, p = uvarint(b, p - 1, 32)
        v9 -= 1
        if v9 < 0 or v9 > length - p:
            raise misfit(v9, "items", p)
        v10 = []
        for _ in range(v9):
            v11, = _unpack_16s(b, p)
            p += 16
            v12 = b[p]
            p += 1
            if v12 > 0x7F:
                v12, p = uvarint(b, p - 1, 32)
            v12 -= 1
            if v12 < 0 or v12 > length - p:
                raise misfit(v12, "items", p)
            v13 = list(_unpack_i(b, p) if v12 == 1 else unpack_from(f">{v12}i", b, p))
            p += v12 * 4
            p = tagged(b, p, {}, {}) if b[p] else p + 1
            v10.append({'topicId': uuid_text(v11), 'partitions': v13})
        p = tagged(b, p, {}, {}) if b[p] else p + 1
        return {'memberEpoch': v1, 'previousMemberEpoch': v2, 'state': v3, 'assignedPartitions': v5, 'partitionsPendingRevocation': v10}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_ConsumerGroupRegularExpressionValue_0(b, p):
    try:
        length = len(b)
        v1 = b[p]
        p += 1
        if v1 > 0x7F:
            v1, p = uvarint(b, p - 1, 32)
        v1 -= 1
        if v1 < 0 or v1 > length - p:
            raise misfit(v1, "items", p)
        v2 = []
        for _ in range(v1):
            v3 = b[p]
            p += 1
            if v3 > 0x7F:
                v3, p = uvarint(b, p - 1, 32)
            v3 -= 1
            v5 = p + v3
            if v3 < 0 or v5 > length:
                raise misfit(v3, "bytes", p)
            v4 = b[p:v5].decode("utf-8", "surrogatepass")
            p = v5
            v2.append(v4)
        v6, v7, = _unpack_qq(b, p)
        p += 16
        p = tagged(b, p, {}, {}) if b[p] else p + 1
        return {'topics': v2, 'metadataVersion': v6, 'timestamp': v7}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogKey_0(b, p):
    try:
        length = len(b)
        v1, = _unpack_h(b, p)
        p += 2
        v3 = p + v1
        if v1 < 0 or v3 > length:
            raise misfit(v1, "bytes", p)
        v2 = b[p:v3].decode("utf-8", "surrogatepass")
        p = v3
        return {'transactionalId': v2}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_0(b, p):
    try:
        length = len(b)
        v1, v2, v3, v4, v5, = _unpack_qhibi(b, p)
        p += 19
        v6 = None
        if v5 >= 0:
            if v5 > length - p:
                raise misfit(v5, "items", p)
            v6 = []
            for _ in range(v5):
                v7, = _unpack_h(b, p)
                p += 2
                v9 = p + v7
                if v7 < 0 or v9 > length:
                    raise misfit(v7, "bytes", p)
                v8 = b[p:v9].decode("utf-8", "surrogatepass")
                p = v9
                v10, = _unpack_i(b, p)
                p += 4
                if v10 < 0 or v10 > length - p:
                    raise misfit(v10, "items", p)
                v11 = list(_unpack_i(b, p) if v10 == 1 else unpack_from(f">{v10}i", b, p))
                p += v10 * 4
                v6.append({'topic': v8, 'partitionIds': v11})
        v12, v13, = _unpack_qq(b, p)
        p += 16
        return {'producerId': v1, 'producerEpoch': v2, 'transactionTimeoutMs': v3, 'transactionStatus': v4, 'transactionPartitions': v6, 'transactionLastUpdateTimestampMs': v12, 'transactionStartTimestampMs': v13}, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_1_previousProducerId(b, p):
    try:
        length = len(b)
        v15, = _unpack_q(b, p)
        p += 8
        return v15, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_1_nextProducerId(b, p):
    try:
        length = len(b)
        v16, = _unpack_q(b, p)
        p += 8
        return v16, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_1_nextProducerEpoch(b, p):
    try:
        length = len(b)
        v17, = _unpack_h(b, p)
        p += 2
        return v17, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_1_clientTransactionVersion(b, p):
    try:
        length = len(b)
        v18, = _unpack_h(b, p)
        p += 2
        return v18, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def read_TransactionLogValue_1(b, p):
    try:
        length = len(b)
        v1, v2, v3, v4, = _unpack_qhib(b, p)
        p += 15
        v5 = b[p]
        p += 1
        if v5 > 0x7F:
            v5, p = uvarint(b, p - 1, 32)
        v5 -= 1
        v6 = None
        if v5 >= 0:
            if v5 > length - p:
                raise misfit(v5, "items", p)
            v6 = []
            for _ in range(v5):
                v7 = b[p]
                p += 1
                if v7 > 0x7F:
                    v7, p = uvarint(b, p - 1, 32)
                v7 -= 1
                v9 = p + v7
                if v7 < 0 or v9 > length:
                    raise misfit(v7, "bytes", p)
                v8 = b[p:v9].decode("utf-8", "surrogatepass")
                p = v9
                v10 = b[p]
                p += 1
                if v10 > 0x7F:
                    v10, p = uvarint(b, p - 1, 32)
                v10 -= 1
                if v10 < 0 or v10 > length - p:
                    raise misfit(v10, "items", p)
                v11 = list(_unpack_i(b, p) if v10 == 1 else unpack_from(f">{v10}i", b, p))
                p += v10 * 4
                p = tagged(b, p, {}, {}) if b[p] else p + 1
                v6.append({'topic': v8, 'partitionIds': v11})
        v12, v13, = _unpack_qq(b, p)
        p += 16
        v14 = {'producerId': v1, 'producerEpoch': v2, 'transactionTimeoutMs': v3, 'transactionStatus': v4, 'transactionPartitions': v6, 'transactionLastUpdateTimestampMs': v12, 'transactionStartTimestampMs': v13}
        if b[p]:
            p = tagged(b, p, v14, {0: ("previousProducerId", read_TransactionLogValue_1_previousProducerId), 1: ("nextProducerId", read_TransactionLogValue_1_nextProducerId), 3: ("nextProducerEpoch", read_TransactionLogValue_1_nextProducerEpoch), 2: ("clientTransactionVersion", read_TransactionLogValue_1_clientTransactionVersion)})
        else:
            p += 1
        return v14, p
    except REFUSALS as error:
        raise refusal(error, b, p) from None


def write_GroupKey_0(version, /, group, topic, partition, **_):
    v1 = group.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    v3 = topic.encode("utf-8", "surrogatepass")
    v4 = len(v3)
    if v4 > 32767:
        raise too_long(v4)
    return b"".join((_pack_hh(version, v2), v1, _pack_h(v4), v3, _pack_i(partition)))


def write_GroupKey_2(version, /, group, **_):
    v1 = group.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hh(version, v2) + v1


def write_GroupKey_3(version, /, groupId, **_):
    v1 = groupId.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hh(version, v2) + v1


def write_GroupKey_5(version, /, groupId, memberId, **_):
    v1 = groupId.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    v3 = memberId.encode("utf-8", "surrogatepass")
    v4 = len(v3)
    if v4 > 32767:
        raise too_long(v4)
    return b"".join((_pack_hh(version, v2), v1, _pack_h(v4), v3))


def write_GroupKey_16(version, /, groupId, regularExpression, **_):
    v1 = groupId.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    v3 = regularExpression.encode("utf-8", "surrogatepass")
    v4 = len(v3)
    if v4 > 32767:
        raise too_long(v4)
    return b"".join((_pack_hh(version, v2), v1, _pack_h(v4), v3))


def write_OffsetCommitValue_0(version, /, offset, metadata, commitTimestamp, **_):
    v1 = metadata.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hqh(version, offset, v2) + v1 + _pack_q(commitTimestamp)


def write_OffsetCommitValue_1(version, /, offset, metadata, commitTimestamp, expireTimestamp, **_):
    v1 = metadata.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hqh(version, offset, v2) + v1 + _pack_qq(commitTimestamp, expireTimestamp)


def write_OffsetCommitValue_3(version, /, offset, leaderEpoch, metadata, commitTimestamp, **_):
    v1 = metadata.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hqih(version, offset, leaderEpoch, v2) + v1 + _pack_q(commitTimestamp)


def write_OffsetCommitValue_4(version, /, offset, leaderEpoch, metadata, commitTimestamp, topicId=ABSENT, **_):
    v1 = metadata.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    v3 = []
    if topicId is not ABSENT:
        v3.append((0, _pack_16s(uuid_bytes(topicId))))
    return b"".join((_pack_hqi(version, offset, leaderEpoch), write_uvarint(v2 + 1), v1, _pack_q(commitTimestamp), tagged_fields(v3)))


def write_GroupMetadataValue_0(version, /, protocolType, generation, protocol, leader, members, **_):
    v1 = protocolType.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    if protocol is None:
        v3, v4 = b"", -1
    else:
        v3 = protocol.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    if leader is None:
        v5, v6 = b"", -1
    else:
        v5 = leader.encode("utf-8", "surrogatepass")
        v6 = len(v5)
        if v6 > 32767:
            raise too_long(v6)
    v7 = members
    v8 = b""
    if v7:
        v10 = []
        for v9 in v7:
            v11 = v9["memberId"].encode("utf-8", "surrogatepass")
            v12 = len(v11)
            if v12 > 32767:
                raise too_long(v12)
            v13 = v9["clientId"].encode("utf-8", "surrogatepass")
            v14 = len(v13)
            if v14 > 32767:
                raise too_long(v14)
            v15 = v9["clientHost"].encode("utf-8", "surrogatepass")
            v16 = len(v15)
            if v16 > 32767:
                raise too_long(v16)
            v17 = v9["subscription"]
            v18 = len(v17)
            v19 = v9["assignment"]
            v20 = len(v19)
            v10 += (_pack_h(v12), v11, _pack_h(v14), v13, _pack_h(v16), v15, _pack_ii(v9["sessionTimeout"], v18), v17, _pack_i(v20), v19,)
        v8 = b"".join(v10)
    return b"".join((_pack_hh(version, v2), v1, _pack_ih(generation, v4), v3, _pack_h(v6), v5, _pack_i(len(v7)), v8))


def write_GroupMetadataValue_1(version, /, protocolType, generation, protocol, leader, members, **_):
    v1 = protocolType.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    if protocol is None:
        v3, v4 = b"", -1
    else:
        v3 = protocol.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    if leader is None:
        v5, v6 = b"", -1
    else:
        v5 = leader.encode("utf-8", "surrogatepass")
        v6 = len(v5)
        if v6 > 32767:
            raise too_long(v6)
    v7 = members
    v8 = b""
    if v7:
        v10 = []
        for v9 in v7:
            v11 = v9["memberId"].encode("utf-8", "surrogatepass")
            v12 = len(v11)
            if v12 > 32767:
                raise too_long(v12)
            v13 = v9["clientId"].encode("utf-8", "surrogatepass")
            v14 = len(v13)
            if v14 > 32767:
                raise too_long(v14)
            v15 = v9["clientHost"].encode("utf-8", "surrogatepass")
            v16 = len(v15)
            if v16 > 32767:
                raise too_long(v16)
            v17 = v9["subscription"]
            v18 = len(v17)
            v19 = v9["assignment"]
            v20 = len(v19)
            v10 += (_pack_h(v12), v11, _pack_h(v14), v13, _pack_h(v16), v15, _pack_iii(v9["rebalanceTimeout"], v9["sessionTimeout"], v18), v17, _pack_i(v20), v19,)
        v8 = b"".join(v10)
    return b"".join((_pack_hh(version, v2), v1, _pack_ih(generation, v4), v3, _pack_h(v6), v5, _pack_i(len(v7)), v8))


def write_GroupMetadataValue_2(version, /, protocolType, generation, protocol, leader, currentStateTimestamp, members, **_):
    v1 = protocolType.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    if protocol is None:
        v3, v4 = b"", -1
    else:
        v3 = protocol.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    if leader is None:
        v5, v6 = b"", -1
    else:
        v5 = leader.encode("utf-8", "surrogatepass")
        v6 = len(v5)
        if v6 > 32767:
            raise too_long(v6)
    v7 = members
    v8 = b""
    if v7:
        v10 = []
        for v9 in v7:
            v11 = v9["memberId"].encode("utf-8", "surrogatepass")
            v12 = len(v11)
            if v12 > 32767:
                raise too_long(v12)
            v13 = v9["clientId"].encode("utf-8", "surrogatepass")
            v14 = len(v13)
            if v14 > 32767:
                raise too_long(v14)
            v15 = v9["clientHost"].encode("utf-8", "surrogatepass")
            v16 = len(v15)
            if v16 > 32767:
                raise too_long(v16)
            v17 = v9["subscription"]
            v18 = len(v17)
            v19 = v9["assignment"]
            v20 = len(v19)
            v10 += (_pack_h(v12), v11, _pack_h(v14), v13, _pack_h(v16), v15, _pack_iii(v9["rebalanceTimeout"], v9["sessionTimeout"], v18), v17, _pack_i(v20), v19,)
        v8 = b"".join(v10)
    return b"".join((_pack_hh(version, v2), v1, _pack_ih(generation, v4), v3, _pack_h(v6), v5, _pack_qi(currentStateTimestamp, len(v7)), v8))


def write_GroupMetadataValue_3(version, /, protocolType, generation, protocol, leader, currentStateTimestamp, members, **_):
    v1 = protocolType.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    if protocol is None:
        v3, v4 = b"", -1
    else:
        v3 = protocol.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    if leader is None:
        v5, v6 = b"", -1
    else:
        v5 = leader.encode("utf-8", "surrogatepass")
        v6 = len(v5)
        if v6 > 32767:
            raise too_long(v6)
    v7 = members
    v8 = b""
    if v7:
        v10 = []
        for v9 in v7:
            v11 = v9["memberId"].encode("utf-8", "surrogatepass")
            v12 = len(v11)
            if v12 > 32767:
                raise too_long(v12)
            if v9["groupInstanceId"] is None:
                v13, v14 = b"", -1
            else:
                v13 = v9["groupInstanceId"].encode("utf-8", "surrogatepass")
                v14 = len(v13)
                if v14 > 32767:
                    raise too_long(v14)
            v15 = v9["clientId"].encode("utf-8", "surrogatepass")
            v16 = len(v15)
            if v16 > 32767:
                raise too_long(v16)
            v17 = v9["clientHost"].encode("utf-8", "surrogatepass")
            v18 = len(v17)
            if v18 > 32767:
                raise too_long(v18)
            v19 = v9["subscription"]
            v20 = len(v19)
            v21 = v9["assignment"]
            v22 = len(v21)
            v10 += (_pack_h(v12), v11, _pack_h(v14), v13, _pack_h(v16), v15, _pack_h(v18), v17, _pack_iii(v9["rebalanceTimeout"], v9["sessionTimeout"], v20), v19, _pack_i(v22), v21,)
        v8 = b"".join(v10)
    return b"".join((_pack_hh(version, v2), v1, _pack_ih(generation, v4), v3, _pack_h(v6), v5, _pack_qi(currentStateTimestamp, len(v7)), v8))


def write_GroupMetadataValue_4(version, /, protocolType, generation, protocol, leader, currentStateTimestamp, members, **_):
    v1 = protocolType.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    if protocol is None:
        v3, v4 = b"", -1
    else:
        v3 = protocol.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    if leader is None:
        v5, v6 = b"", -1
    else:
        v5 = leader.encode("utf-8", "surrogatepass")
        v6 = len(v5)
        if v6 > 32767:
            raise too_long(v6)
    v7 = members
    v8 = b""
    if v7:
        v10 = []
        for v9 in v7:
            v11 = v9["memberId"].encode("utf-8", "surrogatepass")
            v12 = len(v11)
            if v12 > 32767:
                raise too_long(v12)
            if v9["groupInstanceId"] is None:
                v13, v14 = b"", -1
            else:
                v13 = v9["groupInstanceId"].encode("utf-8", "surrogatepass")
                v14 = len(v13)
                if v14 > 32767:
                    raise too_long(v14)
            v15 = v9["clientId"].encode("utf-8", "surrogatepass")
            v16 = len(v15)
            if v16 > 32767:
                raise too_long(v16)
            v17 = v9["clientHost"].encode("utf-8", "surrogatepass")
            v18 = len(v17)
            if v18 > 32767:
                raise too_long(v18)
            v19 = v9["subscription"]
            v20 = len(v19)
            v21 = v9["assignment"]
            v22 = len(v21)
            v10 += (write_uvarint(v12 + 1), v11, write_uvarint(v14 + 1), v13, write_uvarint(v16 + 1), v15, write_uvarint(v18 + 1), v17, _pack_ii(v9["rebalanceTimeout"], v9["sessionTimeout"]), write_uvarint(v20 + 1), v19, write_uvarint(v22 + 1), v21, b'\x00',)
        v8 = b"".join(v10)
    return b"".join((_pack_h(version), write_uvarint(v2 + 1), v1, _pack_i(generation), write_uvarint(v4 + 1), v3, write_uvarint(v6 + 1), v5, _pack_q(currentStateTimestamp), write_uvarint(len(v7) + 1), v8, b'\x00'))


def write_ConsumerGroupMetadataValue_0(version, /, epoch, metadataHash=ABSENT, **_):
    v1 = []
    if metadataHash is not ABSENT:
        v1.append((0, _pack_q(metadataHash)))
    return _pack_hi(version, epoch) + tagged_fields(v1)


def write_ConsumerGroupMemberMetadataValue_0(version, /, instanceId, rackId, clientId, clientHost, subscribedTopicNames, subscribedTopicRegex, rebalanceTimeoutMs, serverAssignor, classicMemberMetadata=ABSENT, **_):
    if instanceId is None:
        v1, v2 = b"", -1
    else:
        v1 = instanceId.encode("utf-8", "surrogatepass")
        v2 = len(v1)
        if v2 > 32767:
            raise too_long(v2)
    if rackId is None:
        v3, v4 = b"", -1
    else:
        v3 = rackId.encode("utf-8", "surrogatepass")
        v4 = len(v3)
        if v4 > 32767:
            raise too_long(v4)
    v5 = clientId.encode("utf-8", "surrogatepass")
    v6 = len(v5)
    if v6 > 32767:
        raise too_long(v6)
    v7 = clientHost.encode("utf-8", "surrogatepass")
    v8 = len(v7)
    if v8 > 32767:
        raise too_long(v8)
    v9 = subscribedTopicNames
    v10 = b""
    if v9:
        v12 = []
        for v11 in v9:
            v13 = v11.encode("utf-8", "surrogatepass")
            v14 = len(v13)
            if v14 > 32767:
                raise too_long(v14)
            v12 += (write_uvarint(v14 + 1), v13,)
        v10 = b"".join(v12)
    if subscribedTopicRegex is None:
        v15, v16 = b"", -1
    else:
        v15 = subscribedTopicRegex.encode("utf-8", "surrogatepass")
        v16 = len(v15)
        if v16 > 32767:
            raise too_long(v16)
    if serverAssignor is None:
        v17, v18 = b"", -1
    else:
        v17 = serverAssignor.encode("utf-8", "surrogatepass")
        v18 = len(v17)
        if v18 > 32767:
            raise too_long(v18)
    v19 = []
    if classicMemberMetadata is not ABSENT:
        v20 = classicMemberMetadata
        if v20 is None:
            v21 = _pack_b(0)
        else:
            v22 = v20["supportedProtocols"]
            v23 = b""
            if v22:
                v25 = []
                for v24 in v22:
                    v26 = v24["name"].encode("utf-8", "surrogatepass")
                    v27 = len(v26)
                    if v27 > 32767:
                        raise too_long(v27)
                    v28 = v24["metadata"]
                    v29 = len(v28)
                    v25 += (write_uvarint(v27 + 1), v26, write_uvarint(v29 + 1), v28, b'\x00',)
                v23 = b"".join(v25)
            v21 = b"".join((_pack_bi(1, v20["sessionTimeoutMs"]), write_uvarint(len(v22) + 1), v23, b'\x00'))
        v19.append((0, v21))
    return b"".join((_pack_h(version), write_uvarint(v2 + 1), v1, write_uvarint(v4 + 1), v3, write_uvarint(v6 + 1), v5, write_uvarint(v8 + 1), v7, write_uvarint(len(v9) + 1), v10, write_uvarint(v16 + 1), v15, _pack_i(rebalanceTimeoutMs), write_uvarint(v18 + 1), v17, tagged_fields(v19)))


def write_ConsumerGroupTargetAssignmentMetadataValue_0(version, /, assignmentEpoch, **_):
    return _pack_hix(version, assignmentEpoch)


def write_ConsumerGroupTargetAssignmentMemberValue_0(version, /, topicPartitions, **_):
    v1 = topicPartitions
    v2 = b""
    if v1:
        v4 = []
        for v3 in v1:
            v5 = v3["partitions"]
            v4 += (_pack_16s(uuid_bytes(v3["topicId"])), write_uvarint(len(v5) + 1), pack(f">{len(v5)}i", *v5), b'\x00',)
        v2 = b"".join(v4)
    return b"".join((_pack_h(version), write_uvarint(len(v1) + 1), v2, b'\x00'))


def write_ConsumerGroupCurrentMemberAssignmentValue_0(version, /, memberEpoch, previousMemberEpoch, state, assignedPartitions, partitionsPendingRevocation, **_):
    v1 = assignedPartitions
    v2 = b""
    if v1:
        v4 = []
        for v3 in v1:
            v5 = v3["partitions"]
            v4 += (_pack_16s(uuid_bytes(v3["topicId"])), write_uvarint(len(v5) + 1), pack(f">{len(v5)}i", *v5), b'\x00',)
        v2 = b"".join(v4)
    v6 = partitionsPendingRevocation
    v7 = b""
    if v6:
        v9 = []
        for v8 in v6:
            v10 = v8["partitions"]
            v9 += (_pack_16s(uuid_bytes(v8["topicId"])), write_uvarint(len(v10) + 1), pack(f">{len(v10)}i", *v10), b'\x00',)
        v7 = b"".join(v9)
    return b"".join((_pack_hiib(version, memberEpoch, previousMemberEpoch, state), write_uvarint(len(v1) + 1), v2, write_uvarint(len(v6) + 1), v7, b'\x00'))


def write_ConsumerGroupRegularExpressionValue_0(version, /, topics, metadataVersion, timestamp, **_):
    v1 = topics
    v2 = b""
    if v1:
        v4 = []
        for v3 in v1:
            v5 = v3.encode("utf-8", "surrogatepass")
            v6 = len(v5)
            if v6 > 32767:
                raise too_long(v6)
            v4 += (write_uvarint(v6 + 1), v5,)
        v2 = b"".join(v4)
    return b"".join((_pack_h(version), write_uvarint(len(v1) + 1), v2, _pack_qqx(metadataVersion, timestamp)))


def write_TransactionLogKey_0(version, /, transactionalId, **_):
    v1 = transactionalId.encode("utf-8", "surrogatepass")
    v2 = len(v1)
    if v2 > 32767:
        raise too_long(v2)
    return _pack_hh(version, v2) + v1


def write_TransactionLogValue_0(version, /, producerId, producerEpoch, transactionTimeoutMs, transactionStatus, transactionPartitions, transactionLastUpdateTimestampMs, transactionStartTimestampMs, **_):
    v1 = transactionPartitions
    v2 = b""
    if v1:
        v4 = []
        for v3 in v1:
            v5 = v3["topic"].encode("utf-8", "surrogatepass")
            v6 = len(v5)
            if v6 > 32767:
                raise too_long(v6)
            v7 = v3["partitionIds"]
            v4 += (_pack_h(v6), v5, (_pack_ii(1, v7[0]) if len(v7) == 1 else pack(f">i{len(v7)}i", len(v7), *v7)),)
        v2 = b"".join(v4)
    return _pack_hqhibi(version, producerId, producerEpoch, transactionTimeoutMs, transactionStatus, (-1 if v1 is None else len(v1))) + v2 + _pack_qq(transactionLastUpdateTimestampMs, transactionStartTimestampMs)


def write_TransactionLogValue_1(version, /, producerId, producerEpoch, transactionTimeoutMs, transactionStatus, transactionPartitions, transactionLastUpdateTimestampMs, transactionStartTimestampMs, previousProducerId=ABSENT, nextProducerId=ABSENT, nextProducerEpoch=ABSENT, clientTransactionVersion=ABSENT, **_):
    v1 = transactionPartitions
    v2 = b""
    if v1:
        v4 = []
        for v3 in v1:
            v5 = v3["topic"].encode("utf-8", "surrogatepass")
            v6 = len(v5)
            if v6 > 32767:
                raise too_long(v6)
            v7 = v3["partitionIds"]
            v4 += (write_uvarint(v6 + 1), v5, write_uvarint(len(v7) + 1), pack(f">{len(v7)}i", *v7), b'\x00',)
        v2 = b"".join(v4)
    v8 = []
    if previousProducerId is not ABSENT:
        v8.append((0, _pack_q(previousProducerId)))
    if nextProducerId is not ABSENT:
        v8.append((1, _pack_q(nextProducerId)))
    if clientTransactionVersion is not ABSENT:
        v8.append((2, _pack_h(clientTransactionVersion)))
    if nextProducerEpoch is not ABSENT:
        v8.append((3, _pack_h(nextProducerEpoch)))
    return b"".join((_pack_hqhib(version, producerId, producerEpoch, transactionTimeoutMs, transactionStatus), write_uvarint((-1 if v1 is None else len(v1)) + 1), v2, _pack_qq(transactionLastUpdateTimestampMs, transactionStartTimestampMs), tagged_fields(v8)))


READERS: dict[str, dict[int, Callable]] = {
    "GroupKey": {
        0: read_GroupKey_0,
        1: read_GroupKey_0,
        2: read_GroupKey_2,
        3: read_GroupKey_3,
        4: read_GroupKey_3,
        5: read_GroupKey_5,
        6: read_GroupKey_3,
        7: read_GroupKey_5,
        8: read_GroupKey_5,
        16: read_GroupKey_16,
    },
    "OffsetCommitValue": {
        0: read_OffsetCommitValue_0,
        1: read_OffsetCommitValue_1,
        2: read_OffsetCommitValue_0,
        3: read_OffsetCommitValue_3,
        4: read_OffsetCommitValue_4,
    },
    "GroupMetadataValue": {
        0: read_GroupMetadataValue_0,
        1: read_GroupMetadataValue_1,
        2: read_GroupMetadataValue_2,
        3: read_GroupMetadataValue_3,
        4: read_GroupMetadataValue_4,
    },
    "ConsumerGroupMetadataValue": {
        0: read_ConsumerGroupMetadataValue_0,
    },
    "ConsumerGroupMemberMetadataValue": {
        0: read_ConsumerGroupMemberMetadataValue_0,
    },
    "ConsumerGroupTargetAssignmentMetadataValue": {
        0: read_ConsumerGroupTargetAssignmentMetadataValue_0,
    },
    "ConsumerGroupTargetAssignmentMemberValue": {
        0: read_ConsumerGroupTargetAssignmentMemberValue_0,
    },
    "ConsumerGroupCurrentMemberAssignmentValue": {
        0: read_ConsumerGroupCurrentMemberAssignmentValue_0,
    },
    "ConsumerGroupRegularExpressionValue": {
        0: read_ConsumerGroupRegularExpressionValue_0,
    },
    "TransactionLogKey": {
        0: read_TransactionLogKey_0,
    },
    "TransactionLogValue": {
        0: read_TransactionLogValue_0,
        1: read_TransactionLogValue_1,
    },
}
WRITERS: dict[str, dict[int, Callable]] = {
    "GroupKey": {
        0: write_GroupKey_0,
        1: write_GroupKey_0,
        2: write_GroupKey_2,
        3: write_GroupKey_3,
        4: write_GroupKey_3,
        5: write_GroupKey_5,
        6: write_GroupKey_3,
        7: write_GroupKey_5,
        8: write_GroupKey_5,
        16: write_GroupKey_16,
    },
    "OffsetCommitValue": {
        0: write_OffsetCommitValue_0,
        1: write_OffsetCommitValue_1,
        2: write_OffsetCommitValue_0,
        3: write_OffsetCommitValue_3,
        4: write_OffsetCommitValue_4,
    },
    "GroupMetadataValue": {
        0: write_GroupMetadataValue_0,
        1: write_GroupMetadataValue_1,
        2: write_GroupMetadataValue_2,
        3: write_GroupMetadataValue_3,
        4: write_GroupMetadataValue_4,
    },
    "ConsumerGroupMetadataValue": {
        0: write_ConsumerGroupMetadataValue_0,
    },
    "ConsumerGroupMemberMetadataValue": {
        0: write_ConsumerGroupMemberMetadataValue_0,
    },
    "ConsumerGroupTargetAssignmentMetadataValue": {
        0: write_ConsumerGroupTargetAssignmentMetadataValue_0,
    },
    "ConsumerGroupTargetAssignmentMemberValue": {
        0: write_ConsumerGroupTargetAssignmentMemberValue_0,
    },
    "ConsumerGroupCurrentMemberAssignmentValue": {
        0: write_ConsumerGroupCurrentMemberAssignmentValue_0,
    },
    "ConsumerGroupRegularExpressionValue": {
        0: write_ConsumerGroupRegularExpressionValue_0,
    },
    "TransactionLogKey": {
        0: write_TransactionLogKey_0,
    },
    "TransactionLogValue": {
        0: write_TransactionLogValue_0,
        1: write_TransactionLogValue_1,
    },
}
