"""The measured outcomes of the suite of coupled systems: what every method must reproduce.

One row per method, one cell per problem: "verdict largest error on [0, 3000]; slope (its standard error) there;
slope (its standard error) on [0, 30000]". Every number came from two independent implementations.
"""

import re
from decimal import Decimal
from typing import NamedTuple

PROBLEMS = ("osc-0", "rot-0", "osc-0.1", "osc-0.5", "rot-0.1", "rot-0.5")

ENERGY = """
DLA0.5
  | ok 4.0e-03; -1.3e-11(2e-10); -1.2e-12(4e-12) | ok 1.1e-02; +3.9e-12(9e-11); -1.3e-13(7e-13)
  | ok 5.1e-03; -1.3e-10(5e-10); -3.2e-12(5e-12) | ok 1.0e-02; -1.9e-08(1e-07); -4.2e-10(2e-09)
  | DRIFT 1.2e-01; -4.1e-05(2e-07); -2.4e-05(1e-06) | DRIFT 4.8e-01; -1.6e-04(3e-06); -2.1e-05(4e-06)
DLA0.4
  | DRIFT 5.9e-01; -7.9e-05(2e-05); -3.5e-06(5e-07) | DRIFT 1.0e+00; -4.2e-05(2e-05); -4.4e-07(2e-07)
  | DRIFT 8.3e-01; -1.1e-04(3e-05); -5.7e-06(8e-07) | DRIFT 1.0e+00; -1.3e-04(4e-05); -1.6e-06(8e-07)
  | DRIFT 1.0e+00; -4.2e-05(2e-05); -4.3e-07(2e-07) | DRIFT 1.0e+00; -4.1e-05(2e-05); -4.3e-07(2e-07)
DLA01
  | ok 5.0e-03; -2.7e-10(1e-10); -4.8e-13(5e-12) | ok 1.4e-02; -3.4e-11(1e-10); -1.1e-14(6e-13)
  | ok 6.4e-03; -5.8e-11(6e-10); -2.0e-12(2e-12) | ok 9.6e-03; +4.9e-08(1e-07); +1.9e-10(2e-09)
  | DRIFT 1.3e-01; -4.3e-05(2e-07); -2.4e-05(1e-06) | DRIFT 4.9e-01; -1.6e-04(3e-06); -2.1e-05(4e-06)
LF
  | ok 1.5e-02; +2.2e-11(1e-10); +1.1e-12(2e-12) | ok 3.8e-02; -2.7e-11(2e-10); +8.9e-13(1e-12)
  | ok 2.0e-02; +7.3e-11(2e-10); +9.0e-13(1e-12) | ok 2.3e-02; +7.7e-11(4e-10); +7.7e-14(4e-12)
  | ok 3.8e-02; -3.6e-11(2e-10); +1.2e-13(1e-12) | ok 3.8e-02; +1.8e-11(1e-10); +2.6e-13(1e-12)
DD
  | ok 5.7e-04; -1.7e-10(5e-10); -9.2e-13(7e-12) | ok 7.7e-04; -2.7e-10(2e-09); -2.7e-12(2e-11)
  | ok 6.9e-04; -9.9e-11(4e-10); -9.0e-13(4e-12) | ok 5.2e-03; -3.0e-09(7e-08); +2.7e-10(3e-10)
  | DRIFT 1.4e-03; +3.1e-07(3e-08); +5.2e-06(4e-07) | DRIFT 3.3e-02; +1.1e-05(8e-07); +6.8e-05(1e-05)
DDS | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11)
FIB-SV | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11)
FIB-EP | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11)
FIB-SV-Y4 | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11)
FIB-SV-S4 | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10)
FIB-EP-Y4 | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11) | exact (2e-11)
FIB-EP-S4 | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10)
DDS-S4 | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10) | exact (1e-10)
DLA0.5-S4
  | ok 6.2e-06; -6.9e-14(3e-14); -7.3e-16(9e-16) | ok 3.9e-05; +1.9e-14(7e-14); +1.8e-15(6e-16)
  | ok 8.1e-06; -1.1e-16(3e-13); -1.7e-16(1e-15) | ok 1.3e-05; -2.0e-11(7e-11); -1.4e-14(1e-12)
  | DRIFT 2.8e-04; -8.2e-08(6e-13); -8.2e-08(6e-12) | DRIFT 1.3e-03; -4.1e-07(2e-11); -4.1e-07(2e-10)
DLA01-S4
  | ok 6.8e-06; -7.0e-14(2e-14); -7.6e-16(9e-16) | ok 4.0e-05; +2.1e-14(4e-14); +3.9e-15(5e-16)
  | ok 8.8e-06; +8.2e-15(3e-13); +2.3e-16(1e-15) | ok 8.4e-06; +1.6e-11(6e-11); +1.3e-14(8e-13)
  | DRIFT 3.6e-04; +1.2e-07(1e-12); +1.2e-07(1e-11) | DRIFT 1.8e-03; +5.8e-07(3e-11); +5.9e-07(3e-10)
"""

DRIVER = """
DLA0.5
  | ok 2.7e-03; -1.1e-11(6e-11); -5.6e-14(3e-13) | ok 1.0e-02; -5.4e-11(1e-10); -2.2e-13(1e-12)
  | ok 2.7e-03; -4.2e-12(4e-11); -1.2e-13(4e-13) | ok 3.6e-03; -2.5e-12(1e-10); -5.0e-13(1e-12)
  | ok 1.0e-02; -6.6e-11(1e-10); -6.6e-13(8e-13) | ok 1.2e-02; -5.9e-12(1e-10); -1.5e-13(1e-12)
DLA0.4
  | ok 1.6e-02; -9.6e-12(6e-10); -3.7e-12(3e-12) | ok 3.0e-02; -1.5e-10(6e-10); +1.9e-12(5e-12)
  | ok 1.9e-02; -1.1e-11(5e-10); -8.2e-13(6e-12) | ok 3.2e-02; +7.5e-13(5e-10); -6.2e-13(3e-12)
  | ok 3.6e-02; +2.2e-10(5e-10); +1.9e-12(5e-12) | ok 5.6e-02; -1.4e-10(5e-10); -1.3e-12(4e-12)
DLA01
  | ok 2.4e-03; +1.5e-11(2e-11); +1.3e-13(9e-15) | ok 5.1e-03; +3.5e-11(7e-11); -6.1e-14(3e-13)
  | ok 2.6e-03; +1.2e-11(1e-11); +1.2e-13(1e-14) | ok 3.3e-03; +4.3e-12(4e-11); -2.0e-13(2e-13)
  | ok 5.5e-03; +3.2e-11(7e-11); +3.0e-13(2e-13) | ok 6.8e-03; +2.8e-11(9e-11); +2.1e-13(4e-13)
LF
  | ok 3.6e-03; -8.9e-12(6e-11); -2.8e-13(5e-13) | ok 1.0e-02; -7.1e-11(1e-10); -3.7e-16(7e-13)
  | ok 3.8e-03; -9.8e-12(4e-11); -2.0e-13(4e-13) | ok 4.3e-03; -2.9e-11(6e-11); -5.2e-13(6e-13)
  | ok 1.0e-02; -7.3e-11(1e-10); -2.4e-13(6e-13) | ok 1.3e-02; -5.5e-11(1e-10); +3.0e-14(9e-13)
DD
  | ok 5.7e-04; +1.7e-10(5e-10); +9.2e-13(7e-12) | ok 7.7e-04; +2.7e-10(2e-09); +2.7e-12(2e-11)
  | ok 6.9e-04; +9.9e-11(4e-10); +9.0e-13(4e-12) | ok 5.2e-03; +3.0e-09(7e-08); -2.7e-10(3e-10)
  | DRIFT 1.4e-03; -3.1e-07(3e-08); -5.2e-06(4e-07) | DRIFT 3.3e-02; -1.1e-05(8e-07); -6.8e-05(1e-05)
DDS | exact (8e-14) | exact (1e-09) | exact (2e-13) | exact (2e-13) | exact (7e-10) | exact (6e-10)
FIB-SV
  | ok 2.4e-03; +1.5e-11(2e-11); +1.3e-13(9e-15) | ok 5.1e-03; +3.5e-11(7e-11); -6.1e-14(3e-13)
  | ok 2.6e-03; +1.2e-11(1e-11); +1.2e-13(1e-14) | ok 3.3e-03; +4.3e-12(4e-11); -2.0e-13(2e-13)
  | ok 5.5e-03; +3.2e-11(7e-11); +3.0e-13(2e-13) | ok 6.8e-03; +2.8e-11(9e-11); +2.1e-13(4e-13)
FIB-EP | exact (8e-14) | exact (1e-09) | exact (2e-13) | exact (2e-13) | exact (7e-10) | exact (6e-10)
FIB-SV-Y4
  | ok 6.1e-06; +7.3e-14(1e-13); +1.5e-16(2e-15) | ok 3.9e-06; +3.5e-14(6e-14); -6.6e-14(1e-14)
  | ok 7.0e-06; +5.5e-14(8e-14); -8.6e-17(2e-15) | ok 1.8e-05; +2.0e-13(4e-13); +1.3e-15(4e-15)
  | ok 6.2e-06; +1.9e-14(1e-13); +7.1e-14(2e-14) | ok 2.4e-05; +2.0e-13(5e-13); +3.0e-14(1e-14)
FIB-SV-S4
  | ok 1.3e-06; -5.0e-15(9e-15); -4.3e-17(5e-17) | ok 4.2e-06; -2.5e-14(2e-14); +1.4e-13(2e-14)
  | ok 1.5e-06; -6.0e-15(5e-15); -3.9e-17(5e-17) | ok 3.4e-06; +4.3e-17(8e-15); -1.2e-17(7e-17)
  | ok 5.0e-06; +2.9e-15(2e-14); +1.3e-13(3e-14) | ok 1.1e-05; +1.5e-14(3e-14); -8.0e-14(8e-15)
FIB-EP-Y4 | exact (2e-13) | exact (3e-09) | exact (3e-13) | exact (2e-13) | exact (2e-09) | exact (2e-09)
FIB-EP-S4 | exact (8e-14) | exact (1e-09) | exact (1e-13) | exact (2e-13) | exact (1e-09) | exact (2e-09)
DDS-S4 | exact (8e-14) | exact (1e-09) | exact (1e-13) | exact (2e-13) | exact (1e-09) | exact (2e-09)
DLA0.5-S4
  | ok 5.3e-07; +1.8e-15(4e-15); +5.8e-19(3e-17) | ok 3.3e-06; +2.3e-14(4e-14); -5.9e-14(1e-14)
  | ok 6.6e-07; +5.1e-15(7e-15); +3.8e-17(4e-17) | ok 2.0e-06; -1.7e-14(4e-14); -9.0e-17(2e-16)
  | DRIFT 8.5e-05; +2.8e-08(4e-14); +2.8e-08(1e-13) | DRIFT 4.3e-04; +1.4e-07(3e-13); +1.4e-07(3e-12)
DLA01-S4
  | ok 1.3e-06; -5.0e-15(9e-15); -4.3e-17(5e-17) | ok 4.2e-06; -2.5e-14(2e-14); +1.4e-13(2e-14)
  | ok 1.5e-06; -6.0e-15(5e-15); -3.9e-17(5e-17) | ok 3.4e-06; +4.3e-17(8e-15); -1.2e-17(7e-17)
  | ok 5.0e-06; +2.9e-15(2e-14); +1.3e-13(3e-14) | ok 1.1e-05; +1.5e-14(3e-14); -8.0e-14(8e-15)
"""

LATITUDE = """
DLA0.5
  | ok 7.3e-03; +7.7e-09(8e-09); +6.8e-12(2e-10) | ok 6.0e-03; -2.3e-09(2e-09); -1.7e-11(6e-11)
  | ok 6.6e-03; +9.8e-10(1e-08); -1.1e-11(2e-10) | ok 1.1e-03; -7.6e-10(4e-09); +5.2e-11(7e-11)
  | DRIFT 5.1e-02; +1.6e-05(3e-08); +1.3e-05(2e-07) | DRIFT 2.2e-01; +7.3e-05(6e-07); +2.6e-05(2e-06)
DLA0.4
  | DRIFT 1.2e-02; -3.2e-06(8e-09); -3.0e-06(9e-09) | DRIFT 9.3e-01; +9.8e-05(3e-05); +1.1e-06(6e-07)
  | DRIFT 3.2e-02; -1.2e-05(2e-08); -9.3e-06(2e-07) | DRIFT 7.3e-02; -2.5e-05(5e-07); -3.7e-06(6e-07)
  | DRIFT 9.3e-01; +9.8e-05(3e-05); +1.1e-06(6e-07) | DRIFT 9.2e-01; +9.6e-05(3e-05); +1.1e-06(6e-07)
DLA01
  | ok 4.2e-03; +5.2e-10(4e-09); -5.2e-11(1e-10) | ok 4.2e-03; -5.4e-09(4e-09); -3.2e-11(6e-11)
  | ok 4.2e-03; -2.9e-09(6e-09); -2.4e-11(1e-11) | ok 2.4e-03; -1.8e-09(3e-09); +2.8e-11(7e-11)
  | DRIFT 5.2e-02; +1.7e-05(3e-08); +1.3e-05(2e-07) | DRIFT 2.3e-01; +7.5e-05(6e-07); +2.6e-05(2e-06)
LF
  | ok 1.3e-02; +6.2e-09(2e-08); -5.0e-12(3e-10) | ok 1.9e-02; -9.1e-09(4e-08); +2.6e-10(3e-10)
  | ok 1.2e-02; +2.9e-09(2e-08); +2.0e-10(3e-10) | ok 7.1e-03; -4.0e-09(2e-08); -5.6e-11(2e-10)
  | ok 1.9e-02; +2.4e-08(4e-08); +2.6e-10(6e-10) | ok 2.0e-02; +8.1e-10(3e-08); +1.6e-10(4e-10)
DD
  | ok 4.3e-03; +1.6e-09(7e-09); +1.4e-11(8e-11) | ok 4.7e-04; -4.5e-10(1e-08); +6.2e-12(1e-10)
  | ok 5.7e-03; +1.2e-09(2e-08); +9.8e-11(1e-10) | ok 1.2e-02; +2.3e-08(2e-08); +1.6e-10(5e-10)
  | DRIFT 3.3e-02; -1.1e-05(1e-08); -1.3e-05(2e-07) | DRIFT 1.8e-01; -5.9e-05(3e-07); -9.2e-06(1e-05)
DDS
  | ok 3.1e-03; -2.0e-09(3e-09); -3.2e-11(4e-11) | ok 5.3e-04; -2.1e-09(4e-09); -2.4e-11(2e-11)
  | ok 4.2e-03; +8.5e-10(6e-09); -5.0e-11(5e-11) | ok 5.5e-03; +2.8e-10(1e-08); +1.6e-12(6e-11)
  | ok 5.5e-04; -8.5e-09(4e-09); -2.1e-11(2e-11) | ok 7.0e-04; +4.6e-10(2e-09); -6.8e-12(2e-11)
FIB-SV
  | ok 5.9e-03; -3.4e-09(6e-09); -4.7e-11(7e-11) | ok 1.5e-03; +1.6e-09(3e-10); +1.6e-11(3e-11)
  | ok 6.8e-03; -4.3e-09(1e-08); -1.2e-10(1e-10) | ok 5.4e-03; +4.7e-10(1e-08); +4.8e-11(8e-11)
  | ok 1.6e-03; -5.7e-11(4e-10); +9.3e-13(3e-12) | ok 1.6e-03; +4.6e-12(3e-10); +1.1e-12(4e-12)
FIB-EP
  | ok 2.1e-03; +3.9e-11(3e-09); -2.0e-11(5e-11) | ok 6.7e-04; -3.0e-10(8e-10); +4.7e-12(9e-12)
  | ok 2.8e-03; -3.6e-09(6e-09); -2.4e-11(3e-11) | ok 3.4e-03; +5.4e-09(8e-09); +4.6e-11(6e-11)
  | ok 6.5e-04; -3.1e-09(4e-10); -2.7e-11(6e-11) | ok 5.6e-04; +1.7e-10(3e-10); +2.3e-12(3e-12)
FIB-SV-Y4
  | ok 1.7e-05; -1.4e-12(2e-11); -1.3e-13(5e-13) | ok 6.6e-06; +1.3e-11(1e-12); -1.1e-14(5e-13)
  | ok 3.7e-05; -2.6e-11(5e-11); +1.5e-14(3e-13) | ok 4.9e-05; +3.2e-11(1e-10); +1.3e-13(9e-13)
  | ok 7.0e-06; -5.3e-12(1e-11); +9.8e-14(8e-14) | ok 1.1e-05; -8.2e-12(7e-12); -3.2e-14(1e-13)
FIB-SV-S4
  | ok 1.6e-06; +3.5e-12(7e-12); -5.9e-15(9e-14) | ok 4.4e-06; +1.6e-12(7e-13); -3.0e-13(1e-13)
  | ok 1.8e-06; +8.2e-12(7e-12); +6.7e-15(1e-13) | ok 1.8e-06; +1.8e-12(8e-12); -5.9e-14(9e-14)
  | ok 4.5e-06; +9.0e-13(3e-12); -1.9e-14(2e-14) | ok 4.5e-06; -1.2e-13(2e-12); -1.1e-14(4e-14)
FIB-EP-Y4
  | ok 2.4e-06; -6.7e-12(4e-11); +1.9e-14(5e-13) | ok 8.8e-06; +2.6e-11(3e-12); -2.1e-12(1e-12)
  | ok 3.0e-05; -4.5e-11(5e-11); -1.8e-13(4e-13) | ok 5.3e-05; +1.9e-11(9e-11); +1.3e-13(9e-13)
  | ok 8.7e-06; -8.2e-12(2e-11); -5.3e-15(2e-13) | ok 1.1e-05; +6.2e-12(5e-12); +8.7e-14(2e-13)
FIB-EP-S4
  | ok 1.1e-06; +5.1e-13(5e-12); +4.1e-15(8e-14) | ok 3.4e-06; -3.8e-13(5e-13); -5.9e-14(8e-15)
  | ok 1.1e-06; +3.6e-12(4e-12); -2.2e-14(7e-14) | ok 1.1e-06; +3.7e-13(6e-12); +3.2e-14(6e-14)
  | ok 3.4e-06; +1.4e-12(3e-12); -4.3e-15(1e-14) | ok 3.5e-06; -2.3e-13(8e-13); -7.0e-15(1e-14)
DDS-S4
  | ok 1.1e-06; -2.5e-13(1e-12); -1.6e-14(3e-14) | ok 6.3e-06; +1.3e-11(9e-12); +7.3e-14(2e-13)
  | ok 3.9e-06; -6.0e-12(3e-11); -5.3e-14(2e-13) | ok 7.1e-06; -7.1e-11(6e-11); -3.5e-13(9e-13)
  | ok 5.6e-06; -3.5e-11(3e-11); -2.3e-13(7e-13) | ok 5.9e-06; +4.0e-12(9e-12); -7.7e-14(2e-13)
DLA0.5-S4
  | ok 1.4e-06; -2.5e-13(3e-12); -7.4e-15(4e-14) | ok 1.4e-05; -1.9e-11(1e-11); -1.4e-11(1e-12)
  | ok 1.5e-06; -1.0e-12(5e-12); +2.0e-14(9e-14) | ok 1.7e-06; +1.7e-12(9e-12); -5.8e-14(1e-13)
  | DRIFT 6.5e-05; +2.0e-08(6e-11); +2.0e-08(2e-12) | DRIFT 3.3e-04; +9.8e-08(1e-11); +9.8e-08(9e-12)
DLA01-S4
  | ok 2.2e-06; +1.5e-12(3e-12); +1.5e-14(7e-14) | ok 1.3e-05; +1.8e-11(1e-11); -4.4e-12(2e-12)
  | ok 2.4e-06; +3.3e-12(6e-12); +1.9e-14(8e-14) | ok 2.3e-06; -4.8e-13(9e-12); +6.9e-14(7e-14)
  | DRIFT 1.7e-04; -5.6e-08(6e-11); -5.6e-08(3e-12) | DRIFT 8.4e-04; -2.8e-07(1e-11); -2.8e-07(8e-11)
"""


class Number(NamedTuple):
    """A printed number, and half a unit of its last digit."""

    value: float
    half: float

    def matches(self, measured: float, relative: float) -> bool:
        """Whether the measured value agrees to this part of the printed one, and half a printed unit."""
        return abs(measured - self.value) <= relative * abs(self.value) + self.half


def number(text: str) -> Number:
    """The printed number."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return Number(float(text), 0.5 * 10.0**exponent)


class Cell(NamedTuple):
    """One entry of a table; where the verdict is exact there are no numbers to compare."""

    verdict: str
    largest: Number | None = None
    slopes: tuple[tuple[Number, Number], ...] = ()
    """Slope and standard error on [0, 3000] and on [0, 30000]."""


def cell(text: str) -> Cell:
    """The entry, as printed."""
    verdict, rest = text.strip().split(maxsplit=1)
    if verdict == "exact":
        return Cell("exact")
    largest, *slopes = rest.split(";")
    pairs = [slope.strip().rstrip(")").split("(") for slope in slopes]
    verdict = {"ok": "bounded"}.get(verdict, verdict)
    return Cell(verdict, number(largest), tuple((number(a), number(b)) for a, b in pairs))


def table(text: str) -> dict[str, dict[str, Cell]]:
    """The rows of a table by method, their cells by problem."""
    rows = re.sub(r"\n\s+\|", " |", text).strip().splitlines()
    split = [[part.strip() for part in row.split("|")] for row in rows]
    return {name: dict(zip(PROBLEMS, map(cell, cells), strict=True)) for name, *cells in split}
