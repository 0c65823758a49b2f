"""The documentation's settings; `make docs` builds it into docs/_build/html.

How a page is written:
- Markdown (MyST). A page with code that runs begins with the front matter of docs/index.md. Its {code-cell} ipython3
  blocks run in order in one kernel, in a temporary folder, and show what they print and draw. An error fails the
  build. Other ``` blocks are not run.
- Formulas: $...$, and $$...$$ for displayed ones. Citations: [modin2020], keys in references.bib.
- Other pages: [words](groups.md). API: {class}`dalembert.System`.
- Every warning fails the build. A page must be reachable from the table of contents in index.md.
"""

import logging
import os
import sys
import tempfile
import uuid
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

import dalembert

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# One thread a page: pages are read side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")
FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_parallel_codegen_split_count=1"
FLAGS += " --xla_cpu_use_fusion_emitters=false"  # they double the time of compiling
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ["DALEMBERT_QUIET"] = "1"  # what pages show does not depend on how long they take
# Pages call the command `dalembert` of the Python that builds them.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["MATPLOTLIBRC"] = str(HERE / "_static")  # figures of the kernels that run the pages

for name in ("groups", "scene"):  # documented by the names that users write
    sys.modules[f"dalembert.{name}"] = getattr(dalembert, name)

SOCKETS = tempfile.TemporaryDirectory(prefix="kernels")
start = AsyncKernelManager.__init__


def _start(self, *given, **named):
    # Kernels that start side by side could be given the same TCP port; files of different names cannot meet.
    start(self, *given, transport="ipc", ip=f"{SOCKETS.name}/{uuid.uuid4().hex}", **named)


AsyncKernelManager.__init__ = _start
logging.getLogger("traitlets").setLevel("WARNING")  # else a line about every page

project = "dalembert"
author = "The dalembert developers"
release = version = dalembert.__version__
copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinxcontrib.bibtex", "docstrings"]
exclude_patterns = ["_*"]
smartquotes = False  # z' is a derivative

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # the gallery takes 90 s, and a loaded machine is several times slower
nb_merge_streams = True

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
add_module_names = False
python_maximum_signature_line_length = 300

html_theme = "furo"
html_title = f"dalembert {release}"
html_static_path = ["_static"] + ["_mathjax"] * (HERE / "_mathjax").exists()
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False
mathjax_path = "mathjax/tex-svg-full.js"  # letters as curves: one file, and no fonts to find
